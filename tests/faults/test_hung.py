"""Workers that are stopped or hang: suspected, then given up, with the right one named."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from faults._running import events, session

SOON = {"suspect_after_s": 1, "give_up_after_s": 2.5}


def test_stopped_worker_is_suspected_then_given_up_while_the_other_sits_in_the_exchange(launch):
    run = launch("train", session(**SOON))
    run.wait_for_step(5)
    stopped, pid = run.kill(rank=1, number=signal.SIGSTOP), run.pid(1)
    (suspect,) = run.wait_until(lambda: events(run.directory, "suspect"), at_most_s=10)
    print(f"from stop to suspicion: {time.monotonic() - stopped:.2f} s")
    assert suspect.rank == 1
    assert "has been silent for 1 s: it is stopped, or its host is gone" in suspect.data["reason"]
    ended = run.ended(at_most_s=10)
    print(f"from stop to the end of the command: {time.monotonic() - stopped:.2f} s")
    assert ended.status == 4
    assert f"process {pid}) has been silent for " in ended.err.splitlines()[0]
    assert ended.err.startswith("rank 1 (host ")
    assert ended.err.splitlines()[-2] == "log: runs/it/logs/worker-1.log"
    assert ended.err.endswith(": volary resume it\n")


@pytest.mark.slow
def test_endless_loop_in_user_code_is_told_from_silence_and_its_function_named(launch):
    run = launch("train", session(fault="child", at=9, **SOON))  # it starts a process of its own, then loops
    ended = run.ended()
    assert ended.status == 4
    assert ended.err.startswith("rank 1 (host ")
    assert "is alive but has made no progress for " in ended.err.splitlines()[0]
    assert "; last step 8, in forward" in ended.err.splitlines()[0]
    assert "in loop_for_ever" in ended.err
    assert [event.rank for event in events(run.directory, "suspect")] == [1]
    assert int(Path("child-1").read_text()) in {one.pid for one in run.started}  # of whom nobody is left
