"""The driver is killed, stopped or cut off: workers finish their step, save and go; `resume` goes on from there."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from faults._running import descendants, events, lives, outcome, running, session, state, words
from faults.conftest import STEPS
from faults.test_own_loop import script
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader

SERVED = "{name: server, servers: 2}"
SOON = {"suspect_after_s": 1, "give_up_after_s": 2.5}


@pytest.mark.slow  # trains twice; tests/driver/test_heartbeats.py has the connection
def test_heartbeat_whose_connection_is_reset_is_made_again_and_nothing_said_is_lost_or_said_twice(launch, undisturbed):
    run = launch("train", session(steps=STEPS, pace_s=0.01, fault="reset", at=9))
    assert run.ended().status == 0, run.text()
    assert {event.rank for event in events(run.directory, "reconnected")} == {1}
    assert outcome(run.directory) == undisturbed
    assert len(events(run.directory, "checkpoint")) == STEPS // 20


@pytest.mark.slow  # the killed driver below has its workers save, too
def test_stopped_driver_finds_a_checkpoint_of_the_step_that_its_workers_finished_without_it(launch, undisturbed):
    run = launch("train", session(steps=STEPS, pace_s=0.02, **SOON))
    at = run.wait_for_step(25)
    workers = [psutil.Process(run.pid(rank)) for rank in (0, 1)]
    run.process.send_signal(signal.SIGSTOP)
    run.wait_until(lambda: not any(lives(worker) for worker in workers))
    saved = Checkpoints(run.directory.checkpoints).steps()[-1]
    assert saved > at
    said = "the driver has not answered for 3 s: it is stopped, or cut off"
    logs = [run.directory.log(rank).read_text() for rank in (0, 1)]  # who finds it first takes the other along
    assert any(f"{said}; stopped after step {saved}\n" in log for log in logs)
    refused = launch("resume", "it").ended()
    assert (refused.status, run.process.poll()) == (2, None)
    assert f"is being written by process {run.process.pid}" in refused.err
    run.process.send_signal(signal.SIGCONT)
    ended = run.ended()
    assert (ended.status, state(run.directory)) == (4, "failed"), run.text()
    who = f"rank [01] \\(host {socket.gethostname()}, process ({workers[0].pid}|{workers[1].pid})\\)"
    assert re.match(f"{who} ended after step {saved}: {said}\n", ended.err), ended.err
    assert ended.err.splitlines()[-1] == f"resume from step {saved}: volary resume {run.directory.argument}"
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == undisturbed


def test_killed_driver_s_workers_save_their_step_and_say_on_its_terminal_how_to_resume(launch, undisturbed):
    run = launch("train", session(steps=STEPS, pace_s=0.05))
    at = run.wait_for_step(25)
    workers = {run.pid(rank) for rank in (0, 1)}  # forked: they have the fork server's name
    named = [one for one in run.started if re.search(r"orphans\.py|volary\.fork_server", words(one))]
    helpers = [one for one in named if one.pid not in workers]
    assert helpers
    for one in helpers:  # as a terminal or a script may do that interrupts all that it has started
        one.send_signal(signal.SIGINT)
    run.process.kill()
    # while workers are ending they hold the run: whoever resumes it waits for that
    again = launch("resume", "it")
    ended = run.ended(gone_within_s=15)
    saved = int(re.findall(r"^resume from step (\d+): volary resume it$", ended.err, re.MULTILINE)[-1])
    assert saved > at
    assert f"the driver (process {run.process.pid}) is gone, without a word; its workers have ended\n" in ended.err
    assert any("stopped after step" in run.directory.log(rank).read_text() for rank in (0, 1))
    assert "Traceback" not in ended.err
    assert again.ended().status == 0, again.text()
    assert [event.data["from_step"] for event in events(run.directory, "resumed")] == [saved]
    assert outcome(run.directory).continues(undisturbed)


@pytest.mark.slow  # the next but one has workers end with their driver
def test_worker_in_which_nothing_can_run_any_more_is_ended_after_its_driver(launch):
    run = launch("train", session(fault="hold the lock", at=9))
    run.wait_until(Path("holding-1").exists)
    run.started |= descendants(run.process.pid)
    run.process.kill()
    ended = run.ended(gone_within_s=15)
    assert "is gone, without a word; 1 of its workers hung and were killed\n" in ended.err
    assert "the driver has ended: nothing listens any more where it did" in run.directory.log(0).read_text()


@pytest.mark.slow  # what it adds to the one before is another way to hang, and a child
def test_worker_that_hangs_in_a_loop_leaves_by_itself_when_its_driver_is_gone_and_its_children_with_it(launch):
    run = launch("train", session(fault="child", at=9))
    run.wait_until(Path("child-1").exists)
    run.started |= descendants(run.process.pid)
    assert int(Path("child-1").read_text()) in {one.pid for one in run.started}
    run.process.kill()
    ended = run.ended(gone_within_s=15)
    assert "is gone, without a word; its workers have ended\n" in ended.err


def test_workers_that_have_not_begun_go_with_their_driver(launch):
    run = launch("train", session())
    run.wait_until(run.directory.log(1).exists)
    run.started |= descendants(run.process.pid)
    run.process.kill()
    run.ended(gone_within_s=15)
    assert not Checkpoints(run.directory.checkpoints).steps()


@pytest.mark.slow  # starts four processes twice
@pytest.mark.parametrize("consistency", ["bsp", "async"])
def test_servers_and_their_workers_end_without_a_driver_that_keeps_their_work_in_order(launch, consistency):
    run = launch("train", session(steps=STEPS, pace_s=0.02, consistency=consistency, exchange=SERVED, **SOON))
    run.wait_for_step(1)
    run.wait_for_checkpoint()
    with RunReader(run.directory) as reader:
        pids = [*json.loads(reader.info()["pids"])[1:], *json.loads(reader.info()["server_pids"])]
    others = [psutil.Process(pid) for pid in pids]
    assert len(others) == 4
    run.process.send_signal(signal.SIGSTOP)
    run.wait_until(lambda: not any(lives(one) for one in others))
    saved = Checkpoints(run.directory.checkpoints).steps()[-1]
    run.process.send_signal(signal.SIGCONT)
    ended = run.ended()
    assert ended.status == 4, run.text()
    assert "the driver has not answered for 3 s: it is stopped, or cut off" in ended.err
    assert ended.err.splitlines()[-1] == f"resume from step {saved}: volary resume {run.directory.argument}"
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()


@pytest.mark.slow  # the way is that of the other runs; what differs is that nothing can be saved
def test_loops_of_a_user_s_own_end_without_their_driver():
    with running(*script("time.sleep(0.02)", steps="100_000")) as run:
        run.wait_for_step(5)
        run.process.kill()
        ended = run.ended(gone_within_s=15)
    assert "is gone, without a word; its workers have ended\n" in ended.err
    assert ended.err.endswith("a training loop of your own, which has saved nothing\n")
    assert "Traceback" not in run.text()
