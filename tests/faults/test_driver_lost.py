"""The driver is killed, stopped or cut off: workers finish their step, save and go; `resume` goes on from there."""

from __future__ import annotations

import re
import signal
import socket

import psutil

from faults._running import events, lives, outcome, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints

SOON = {"suspect_after_s": 1, "give_up_after_s": 2.5}


def test_heartbeat_whose_connection_is_reset_is_made_again_and_nothing_said_is_lost_or_said_twice(launch, undisturbed):
    run = launch("train", session(steps=STEPS, pace_s=0.01, fault="reset", at=9))
    assert run.ended().status == 0, run.text()
    assert {event.rank for event in events(run.directory, "reconnected")} == {1}
    assert outcome(run.directory) == undisturbed
    assert len(events(run.directory, "checkpoint")) == STEPS // 20


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
    run.process.send_signal(signal.SIGCONT)
    ended = run.ended()
    assert (ended.status, state(run.directory)) == (4, "failed"), run.text()
    who = f"rank [01] \\(host {socket.gethostname()}, process ({workers[0].pid}|{workers[1].pid})\\)"
    assert re.match(f"{who} ended after step {saved}: {said}\n", ended.err), ended.err
    assert ended.err.splitlines()[-1] == f"resume from step {saved}: volary resume {run.directory.argument}"
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == undisturbed
