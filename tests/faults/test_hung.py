"""Workers that are stopped, hang, or are merely slow: the right one is named, and only what hangs is given up."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from faults._running import Run, events, last_step, session, state
from volary.run.database.reader import Event

SOON = {"suspect_after_s": 1, "give_up_after_s": 2.5}
ONE = "{name: server, servers: 1}"


def suspect(run: Run, at_most_s: float = 60) -> Event:
    """The run's first warning of a worker."""
    run.wait_for_step(1)
    return run.wait_until(lambda: events(run.directory, "suspect"), at_most_s)[0]


def test_stopped_worker_is_suspected_then_given_up_while_the_other_sits_in_the_exchange(launch):
    run = launch("train", session(**SOON))
    run.wait_for_step(5)
    stopped, pid = run.kill(rank=1, number=signal.SIGSTOP), run.pid(1)
    warning = suspect(run, at_most_s=10)
    print(f"from stop to suspicion: {time.monotonic() - stopped:.2f} s")
    assert warning.rank == 1
    silent = re.search(r"has been silent for (\d+) s: it is stopped, or its host is gone", warning.data["reason"])
    assert silent
    assert int(silent[1]) >= SOON["suspect_after_s"]  # more, where the driver itself had to wait for a processor
    ended = run.ended(at_most_s=10)
    print(f"from stop to the end of the command: {time.monotonic() - stopped:.2f} s")
    assert ended.status == 4
    assert f"process {pid}) has been silent for " in ended.err.splitlines()[0]
    assert ended.err.startswith("rank 1 (host ")
    assert "import torch" not in ended.err  # nothing that it was in long before
    assert ended.err.splitlines()[-2] == "log: runs/it/logs/worker-1.log"
    assert ended.err.endswith(": volary resume it\n")


@pytest.mark.slow  # a stopped worker is given up above
def test_endless_loop_that_others_wait_for_is_given_up_at_its_bound_with_the_users_line(launch):
    run = launch("train", session(fault="loop", at=9, stuck_after_s=3))
    warning = suspect(run)
    assert (warning.rank, "in loop_for_ever" in warning.data["stack"]) == (1, True)
    assert "in forward; rank 0 waits for it; it is at net.py:" in warning.data["reason"]
    ended = run.ended()
    assert ended.status == 4
    assert "warning: step 8: rank 1 (host " in ended.out
    assert ended.err.startswith("rank 1 (host ")
    first = ended.err.splitlines()[0]
    assert "is alive but has made no progress for " in first
    assert ", in forward; rank 0 waits for it; last step 8, in forward by its last heartbeat" in first
    assert "in loop_for_ever" in ended.err
    assert [event.rank for event in events(run.directory, "suspect")] == [1]


@pytest.mark.slow  # half of its time is waited; driver/test_failure_detector_simulated.py has more healthy workers
def test_forward_that_takes_longer_than_any_silence_may_goes_on(launch):
    run = launch("train", session(steps=30, fault="loop until told", at=9, **SOON))
    run.wait_until(lambda: last_step(run.directory) >= 8)
    began = time.monotonic()
    run.wait_until(lambda: time.monotonic() - began > 2 * SOON["give_up_after_s"])
    Path("go-on").touch()
    assert run.ended().status == 0, run.text()
    assert state(run.directory) == "finished"


@pytest.mark.slow  # a worker that others wait for is the one above
def test_one_worker_alone_that_hangs_is_warned_of_and_goes_on_when_it_can(launch):
    run = launch("train", session(steps=20, workers=1, fault="loop until told", ranks=[0], at=9, stuck_after_s=1))
    warning = suspect(run)
    assert warning.data["reason"].partition("; it is at")[0].endswith(", in forward; nobody waits for it")
    began = time.monotonic()
    run.wait_until(lambda: time.monotonic() - began > 3)
    Path("go-on").touch()
    assert run.ended().status == 0, run.text()


@pytest.mark.slow
def test_one_worker_alone_that_is_stopped_goes_on_when_its_user_lets_it(launch):
    run = launch("train", session(workers=1, pace_s=0.01, **SOON))
    run.wait_for_step(5)
    worker = psutil.Process(run.pid(0))
    worker.suspend()
    assert "has been silent for " in suspect(run).data["reason"]
    began = time.monotonic()
    run.wait_until(lambda: time.monotonic() - began > 2 * SOON["give_up_after_s"])
    worker.resume()
    at = last_step(run.directory)
    run.wait_until(lambda: last_step(run.directory) > at + 20)


@pytest.mark.slow
def test_call_that_holds_the_interpreter_is_a_slow_worker_and_not_a_silent_one(launch):
    run = launch("train", session(fault="hold", at=20, pace_s=0.1, stuck_after_s=6, **SOON))
    ended = run.ended()
    assert ended.status == 4
    first = ended.err.splitlines()[0]
    assert first.startswith("rank 1 (host ")
    assert "but its process is at work: a long call outside of Python holds the interpreter's lock" in first
    assert [event.rank for event in events(run.directory, "suspect")] == [1]


@pytest.mark.slow  # tests/driver/test_stragglers.py has the cause and the line
def test_slow_worker_is_named_with_its_cause_as_an_event_and_in_the_plain_output(launch):
    run = launch("train", session(slow_s=0.1))
    run.wait_for_step(1)
    (slow,) = run.wait_until(lambda: events(run.directory, "slow"))
    assert (slow.rank, slow.data["cause"]) == (1, "forward")
    assert 0.25 < slow.data["share"] < 1
    line = f"warning: step {slow.step}: rank 1 is the slowest: others wait "
    run.wait_until(lambda: line in run.text())
    assert "of each step for it; its forward takes 1" in run.text()


@pytest.mark.slow  # as the quick one above, with what a session sets by default: half a minute
def test_forward_of_25_seconds_after_quick_steps_goes_on(launch):
    run = launch("train", session(steps=30, fault="25 s", at=9))
    warning = suspect(run)
    assert (warning.rank, run.ended().status) == (1, 0), run.text()


@pytest.mark.slow
def test_endless_loop_of_a_worker_with_a_child_leaves_neither(launch):
    run = launch("train", session(fault="child", at=9, stuck_after_s=3))  # it starts a process of its own, then loops
    assert run.ended().status == 4
    assert int(Path("child-1").read_text()) in {one.pid for one in run.started}  # of whom nobody is left


@pytest.mark.slow
def test_hang_in_a_bsp_run_over_servers_is_found_by_the_same_rule(launch):
    run = launch("train", session(fault="loop", at=9, stuck_after_s=3, exchange=ONE))
    ended = run.ended()
    assert ended.status == 4
    first = ended.err.splitlines()[0]
    assert first.startswith("rank 1 (host ")
    assert "in forward; rank 0 waits for it" in first
    assert "in loop_for_ever" in ended.err


@pytest.mark.slow
def test_hang_where_nobody_waits_is_warned_of_and_the_others_go_on(launch):
    run = launch("train", session(fault="loop", at=9, stuck_after_s=3, consistency="async", exchange=ONE))
    assert suspect(run).rank == 1
    at = last_step(run.directory)
    run.wait_until(lambda: last_step(run.directory) > at + 200)
    assert events(run.directory, "lost") == []


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["bsp", "async"])
def test_slow_worker_of_a_run_with_servers_is_named_too(launch, consistency):
    run = launch("train", session(workers=3, slow_s=0.1, consistency=consistency, exchange=ONE))
    run.wait_for_step(1)
    slow = run.wait_until(lambda: events(run.directory, "slow"))[0]
    assert (slow.rank, slow.data["cause"]) == (1, "forward")
