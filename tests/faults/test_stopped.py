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
    told = [line[len("12:00:00 ") :] for line in ended.out.splitlines()]
    assert told.count("stopping after this step; Ctrl-C again stops now") == 1
    assert (ended.out + ended.err).count("volary resume") == 1

    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_start_is_ended_at_once_since_there_is_nothing_to_save(launch, number):
    run = launch("train", session(after="never"))  # rank 1 does not come on
    run.wait_until(lambda: (run.directory.logs / "worker-1.log").exists())
    run.process.send_signal(number)
    ended = run.ended(at_most_s=20)
    assert (ended.status, state(run.directory), last_step(run.directory)) == (130, "stopped", 0), run.text()
    assert ended.err.splitlines() == ["stopped before the first step"]
    assert "begin again, as there is no checkpoint yet: volary resume it" in ended.out
    assert not Checkpoints(run.directory.checkpoints).steps()


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once(launch):
    again = launch("train", session(pace_s=0.01))
    again.wait_for_step(3)
    os.kill(again.pid(1), signal.SIGSTOP)  # the step will not be finished
    again.wait_until(lambda: psutil.Process(again.pid(1)).status() == psutil.STATUS_STOPPED)
    again.process.send_signal(signal.SIGINT)
    again.process.send_signal(signal.SIGTERM)
    ended = again.ended(at_most_s=5)
    assert (ended.status, state(again.directory)) == (130, "stopped"), again.text()
    assert ended.err.splitlines()[-1:] == ["stopped at once"]
    assert ended.out.count("volary resume it") == 1


@pytest.mark.slow  # as an interrupt, whose run is resumed above
def test_worker_that_is_told_to_terminate_ends_the_whole_run_with_a_checkpoint(launch):
    run = launch("train", session(fault="terminate", at=7))
    assert run.ended().status == 130, run.text()
    assert (state(run.directory), last_step(run.directory)) == ("stopped", 7)
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [7]


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
