"""The user, a terminal or a scheduler ends the run: the step is finished, a checkpoint written; `resume` goes on."""

from __future__ import annotations

import os
import pty
import signal

import psutil
import pytest

from faults._running import events, last_step, outcome, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints


def test_ctrl_c_in_a_terminal_reaches_the_driver_alone_and_what_it_stopped_is_resumed_exactly(launch, undisturbed):
    ours, theirs = pty.openpty()
    try:
        run = launch(
            "train",
            session(steps=STEPS, pace_s=0.02),
            stdin=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        run.wait_for_step(3)
        groups = {os.getpgid(run.pid(rank)) for rank in (0, 1)} | {os.getpgid(run.process.pid)}
        assert len(groups) == 3  # or the terminal would interrupt the workers too
        os.write(ours, b"\x03")
        ended = run.ended(at_most_s=15)
    finally:
        os.close(ours)
        os.close(theirs)
    stopped_at = last_step(run.directory)
    assert (ended.status, state(run.directory)) == (130, "stopped"), run.text()
    assert 3 <= stopped_at < STEPS
    assert Checkpoints(run.directory.checkpoints).steps()[-1] == stopped_at
    assert "KeyboardInterrupt" not in run.text()

    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == undisturbed


@pytest.mark.slow
def test_ctrl_c_before_the_workers_have_come_is_not_forgotten_and_twice_ends_at_once(launch):
    run = launch("train", session(pace_s=0.01))
    run.wait_until(lambda: (run.directory.logs / "worker-1.log").exists())
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert (state(run.directory), last_step(run.directory)) == ("stopped", 1)

    again = launch("resume", "it")
    again.wait_for_step(3)
    os.kill(again.pid(1), signal.SIGSTOP)  # the step will not be finished
    again.wait_until(lambda: psutil.Process(again.pid(1)).status() == psutil.STATUS_STOPPED)
    again.process.send_signal(signal.SIGINT)
    again.process.send_signal(signal.SIGTERM)
    ended = again.ended(at_most_s=5)
    assert (ended.status, state(run.directory)) == (130, "stopped"), again.text()
    assert ended.err.splitlines()[-2:] == ["stopped at once", f"go on: volary resume {run.directory.path}"]


def test_worker_that_is_told_to_terminate_ends_the_whole_run_with_a_checkpoint(launch):
    run = launch("train", session(fault="terminate", at=7))
    assert run.ended().status == 130, run.text()
    assert (state(run.directory), last_step(run.directory)) == ("stopped", 7)
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [7]


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
