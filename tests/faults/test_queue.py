"""Runs of the queue of this machine: preempted, killed with their driver or their runner, and whole all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from faults._queue import ALL_CORES, driver, found, kill_all, runner, submit, until
from faults._running import events, last_step, outcome, session, state
from faults.conftest import STEPS
from volary.cli.command.main import run as command
from volary.jobs.machinery import moment_here
from volary.jobs.machines.notices import NoticeFolder
from volary.jobs.machines.shares import Notice, RunningHere
from volary.jobs.settings import settings_file
from volary.jobs.table import queue_folder
from volary.run.control.stopping import FILE as ASKED
from volary.run.database.reader import RunReader
from volary.run.launch.queued import LOCAL, job_of
from volary.run.machine.cores import cores_here

pytestmark = pytest.mark.usefixtures("queue")


def test_a_run_that_gives_way_to_a_higher_priority_resumes_by_itself_and_equals_one_that_never_stopped(undisturbed):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES)
    until(lambda: last_step(found("it")) == 39)
    submit(ALL_CORES, "--priority", 1, "run.name=dear", "train.steps=1")
    until((found("it").path / ASKED).exists)
    Path("go-on").touch()
    until(lambda: state(found("dear")) == state(found("it")) == "finished")
    (stopped,) = events(found("it"), "stopped")
    assert 40 <= stopped.data["step"] < STEPS
    assert outcome(found("it")).continues(undisturbed)


@pytest.mark.slow  # three attempts
@pytest.mark.skipif(len(cores_here()) < 2, reason="needs two cores")
def test_a_run_whose_workers_come_and_go_gives_way_and_resumes_with_those_for_which_there_are_cores():
    most = len(cores_here())
    session(steps=STEPS, pace_s=0.05)
    submit("strategy.recover=memory", f"strategy.workers=1..{most}")
    until(lambda: last_step(found("it")) > 5)
    submit(f"--cores={most - 1}", "--priority", 1, "run.name=dear", "strategy.workers=1", "train.steps=100000")
    until(lambda: events(found("it"), "resumed"))
    assert [event.data["workers"] for event in events(found("it"), "started")] == [most, 1]
    assert command(["stop", "dear"]) == 0
    until(lambda: state(found("it")) == "finished")
    (stopped,), (resumed,) = events(found("it"), "stopped"), events(found("it"), "resumed")
    assert stopped.data["step"] == resumed.data["from_step"]


@pytest.mark.slow  # two attempts
def test_a_runner_that_is_killed_leaves_its_runs_and_the_next_one_goes_on_with_them(undisturbed, volary_queue):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES)
    submit(ALL_CORES, "run.name=next", "train.steps=1")
    until(lambda: last_step(found("it")) == 39)
    runner().kill()
    Path("go-on").touch()
    until(lambda: state(found("it")) in ("finished", "queued") and not found("it").is_live())
    assert outcome(found("it")).continues(undisturbed)
    volary_queue()
    until(lambda: state(found("next")) == "finished")
    assert len(events(found("it"), "started")) == len(events(found("next"), "started")) == 1


@pytest.mark.slow  # two attempts
def test_a_run_whose_driver_is_killed_is_tried_again(undisturbed):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES)
    until(lambda: last_step(found("it")) == 39)
    driver("it").kill()
    Path("go-on").touch()
    until(lambda: state(found("it")) == "finished")
    assert len(events(found("it"), "started")) == 2
    assert outcome(found("it")).continues(undisturbed)


@pytest.mark.slow  # two attempts
@pytest.mark.parametrize("told", ["driver", "worker"])  # a worker alone: on another machine
def test_a_run_whose_machine_is_taken_away_saves_and_is_resumed_without_a_loss(told, undisturbed):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES, "--retries", 0)
    until(lambda: last_step(found("it")) == 39)
    if told == "driver":
        driver("it").terminate()
        until(lambda: next(iter(events(found("it"), "stopping")), None))
    else:
        with RunReader(found("it")) as reader:
            os.kill(json.loads(reader.info()["pids"])[2], signal.SIGTERM)
    Path("go-on").touch()
    until(lambda: state(found("it")) == "finished")
    (stopped,) = events(found("it"), "stopped")
    (resumed,) = events(found("it"), "resumed")
    assert stopped.data["step"] == resumed.data["from_step"] >= 40
    assert outcome(found("it")).continues(undisturbed)


@pytest.mark.slow  # two attempts
def test_after_everything_was_killed_at_once_what_was_queued_goes_on(undisturbed, volary_queue):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES)
    submit(ALL_CORES, "run.name=next", "train.steps=1")
    until(lambda: last_step(found("it")) == 39)
    kill_all(runner(), driver("it"))
    (queue_folder() / "queue.sqlite").write_bytes(b"torn")
    Path("go-on").touch()
    volary_queue()
    until(lambda: state(found("it")) == state(found("next")) == "finished")
    assert outcome(found("it")).continues(undisturbed)


@pytest.mark.slow  # two starts
def test_where_its_user_wants_that_train_and_resume_go_through_the_queue(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config").absolute()))
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text("all_runs: true\n")
    session(steps=2)
    assert command(["train", "session.yaml", "--quiet"]) == 0
    assert command(["resume", "it", "--quiet", "train.steps=4"]) == 0
    assert job_of(found("it")).engine == LOCAL
    assert (state(found("it")), last_step(found("it"))) == ("finished", 4)


@pytest.mark.slow  # two starts
def test_the_cores_of_a_run_that_trains_without_the_queue_are_free_when_it_has_ended(launch, queue):
    session(steps=STEPS, fault="loop until told", at=40)
    alone = launch("train", "session.yaml", "--quiet")
    alone.wait_for_step(39)
    submit("run.name=next", "train.steps=1")
    (row,) = queue.rows()
    assert "used outside of the queue" in row.reason
    Path("go-on").touch()
    assert alone.ended().status == 0
    until(lambda: state(found("next")) == "finished")


@pytest.mark.slow  # a start
def test_a_run_that_fails_by_its_own_code_is_not_tried_again_nor_are_those_that_come_after_it():
    session(steps=STEPS, fault="raise", at=3)
    submit()
    submit("--after", "it", "run.name=next")
    until(lambda: state(found("it")) == state(found("next")) == "failed")
    assert len(events(found("it"), "started")) == 1
    assert not events(found("next"), "started")


@pytest.mark.slow  # a start
def test_what_its_driver_refuses_has_failed_and_says_why(capfd):
    session(steps=1)
    submit("--hold", "engine=local")
    Path("net.py").unlink()
    assert command(["queue", "release", "it"]) == 0
    until(lambda: state(found("it")) == "failed")
    capfd.readouterr()
    assert command(["show", "it"]) == 0
    assert "net.py" in capfd.readouterr().out


@pytest.mark.slow  # a start
def test_a_run_whose_session_file_was_changed_meanwhile_trains_by_its_own_copy_and_says_so():
    session(steps=2)
    submit("--hold")
    file = Path("session.yaml")
    file.write_text(file.read_text().replace("steps: 2", "steps: 3"))
    assert command(["queue", "release", "it"]) == 0
    until(lambda: state(found("it")) == "finished")
    assert last_step(found("it")) == 2
    said = [one.data["text"] for one in events(found("it"), "warning")]
    assert "session.yaml was changed after the run was submitted, which keeps its own copy" in said


@pytest.mark.slow  # a start
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_cores_that_another_user_s_queue_has_given_are_free_when_his_run_has_ended(monkeypatch, queue, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config").absolute()))
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text(f"share_folder: {tmp_path / 'shared'}\n")
    folder, boot = NoticeFolder(tmp_path / "shared"), moment_here().boot
    with subprocess.Popen(["sleep", "600"], user=65534) as his:
        notice = Notice(65534, his.pid, boot, (RunningHere(his.pid, 0.0, tuple(cores_here()), 1),))
        file = tmp_path / "shared" / "65534.json"
        file.write_bytes(msgspec.json.encode(notice))
        os.chown(file, 65534, 65534)
        session(steps=2)
        submit()
        until(lambda: folder.mine(0))
        assert folder.mine(0).wants.cores == 2
        (row,) = queue.rows()
        assert "used outside of the queue" in row.reason
        his.kill()
    until(lambda: state(found("it")) == "finished")
    assert folder.mine(0).wants is None


@pytest.mark.slow  # two starts
def test_a_run_that_is_held_while_it_trains_saves_and_waits_until_it_is_released(undisturbed):
    session(steps=STEPS, fault="loop until told", at=40)
    submit(ALL_CORES)
    until(lambda: last_step(found("it")) == 39)
    assert command(["queue", "hold", "it"]) == 0
    until((found("it").path / ASKED).exists)
    Path("go-on").touch()
    until(lambda: not found("it").is_live())
    assert state(found("it")) == "queued"
    assert command(["queue", "release", "it"]) == 0
    until(lambda: state(found("it")) == "finished")
    assert outcome(found("it")).continues(undisturbed)


@pytest.mark.slow  # a start
@pytest.mark.parametrize("verb", [["stop", "it"], ["queue", "cancel", "it"]])
def test_a_run_that_its_user_stops_leaves_the_queue(verb, queue):
    session(steps=100_000)
    submit(ALL_CORES)
    until(lambda: last_step(found("it")) > 3)
    assert command(verb) == 0
    if verb[0] == "queue":  # the other one waits for the end
        until(lambda: state(found("it")) == "stopped")
    assert state(found("it")) == "stopped"
    until(lambda: queue.rows() == [])
