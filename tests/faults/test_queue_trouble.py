"""The queue of a machine in trouble: a second runner, a clock that is set, a full disk, a new start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from faults._clock import DAY_S, jump
from faults._disk import filled, small
from faults._queue import ALL_CORES, driver, found, kill_all, runner, submit, until
from faults._running import VOLARY, events, last_step, lives, outcome, session, state
from faults.conftest import STEPS
from volary.cli.command.main import run as command
from volary.jobs.queue import LocalQueue
from volary.jobs.table import queue_folder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("queue")]  # each waits for several runs
BOOT = "/proc/sys/kernel/random/boot_id"
LATER = 'mount --bind boot "$0" && exec "$@"'


def started_once(*names: str) -> bool:
    return all(len(events(found(name), "started")) == 1 for name in names)


def test_two_runners_at_once_start_each_run_once(queue):
    session(steps=3)
    submit("--hold")
    submit("run.name=first", "train.steps=100000", ALL_CORES)
    until(lambda: last_step(found("first")) > 3)
    names = [f"r{number}" for number in range(4)]
    for name in names:
        submit("--cores", 1, f"run.name={name}")
    one = runner()
    lock = queue_folder() / "runner.lock"
    lock.unlink()  # as a user who tidies up: nobody sees the first runner any more
    command(["queue"])
    other = runner()
    assert lives(one)
    assert other.pid != one.pid
    assert command(["stop", "first"]) == 0
    until(lambda: all(state(found(name)) == "finished" for name in names))
    assert started_once("first", *names)
    assert command(["queue", "cancel", "it"]) == 0
    until(lambda: not lives(one))


def test_a_clock_that_jumps_by_days_changes_neither_who_starts_nor_who_gives_way(clock, undisturbed):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES, "--time", "1h")
    until(lambda: last_step(found("it")) == 39)
    submit(ALL_CORES, "run.name=next", "train.steps=1")
    for ahead_s in (DAY_S, -3 * DAY_S):
        jump(clock, ahead_s)
        submit("--cores", 1, "--time", "2h", f"run.name=late{ahead_s > 0}", "train.steps=1")
        (row,) = (row for row in LocalQueue().rows() if row.entry.run == str(found("next").path.absolute()))
        assert 0 < row.starts_in_s <= 3600, "by what its user says of the run before"
    Path("go-on").touch()
    until(lambda: state(found("lateFalse")) == "finished")
    assert started_once("it", "next", "lateTrue", "lateFalse")
    assert outcome(found("it")) == undisturbed


@pytest.mark.root
def test_a_disk_that_is_full_keeps_nobody_from_training_and_the_queue_goes_on_when_there_is_room(
    monkeypatch, tmp_path, capfd, undisturbed
):
    with small(tmp_path / "small") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder))
        session(steps=STEPS, fault="loop until told", at=40)
        submit(ALL_CORES)
        submit(ALL_CORES, "run.name=next", "train.steps=1")
        until(lambda: last_step(found("it")) == 39)
        before = runner()
        ballast = filled(folder)
        capfd.readouterr()
        assert command(["submit", "session.yaml", "run.name=other"]) == 1
        assert capfd.readouterr().err == f"the queue in {queue_folder()} cannot be written: database or disk is full\n"
        assert not found("other").path.exists()
        Path("go-on").touch()
        until(lambda: state(found("it")) == "finished" and not found("it").is_live())
        assert outcome(found("it")) == undisturbed
        assert state(found("next")) == "queued"
        ballast.unlink()
        until(lambda: state(found("next")) == "finished")
        assert started_once("it", "next")
        until(lambda: not lives(before))


@pytest.mark.root
def test_a_run_on_a_machine_that_is_started_anew_resumes_and_has_lost_nothing(undisturbed):
    Path("boot").write_text("00000000-0000-0000-0000-000000000000\n")
    later = ["unshare", "--mount", "sh", "-c", LATER, BOOT]
    done = subprocess.run([*later, "cat", BOOT], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs root, for a machine that has another start: {done.stderr.strip()}")
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES, "--retries", 0)
    until(lambda: last_step(found("it")) == 39)
    kill_all(runner(), driver("it"))
    Path("go-on").touch()
    assert subprocess.run([*later, *VOLARY, "queue"], check=False).returncode == 0
    until(lambda: state(found("it")) == "finished")
    assert len(events(found("it"), "started")) == 2
    assert outcome(found("it")).continues(undisturbed)
