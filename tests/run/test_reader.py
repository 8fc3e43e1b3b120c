"""A run seen from outside: its state, its steps, and messages where it cannot be read."""

import shutil
import signal
import subprocess
import sys

import pytest

from volary.errors import RunError
from volary.run.database.journal import Journal, StepRow
from volary.run.database.reader import PHASES, RunReader
from volary.run.directory import RunDirectory

DRIVE = """
import subprocess, sys
from pathlib import Path
from volary.run.directory import RunDirectory
from volary.run.database.journal import Journal
run = RunDirectory(Path(sys.argv[1]))
with run.lock():
    worker = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    journal = Journal(run.database)
    journal.note(state="running")
    print("running", flush=True)
    sys.stdin.read()
"""


def row(step, rank=0, **values):
    return StepRow(**{**dict.fromkeys(StepRow._fields, 0), "step": step, "rank": rank, **values})


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


def write(run, *rows, **facts):
    journal = Journal(run.database)
    journal.note(**facts)
    journal.steps(rows)
    journal.close()


def state(run):
    with RunReader(run) as reader:
        return reader.state()


@pytest.mark.parametrize("said", ["finished", "stopped", "failed"])
def test_an_ended_run_says_how(run, said):
    assert state(run) == "new"
    write(run, state=said)
    assert state(run) == said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_is_running_while_its_driver_lives_and_lost_when_it_was_killed(run, how):
    with subprocess.Popen(
        [sys.executable, "-c", DRIVE, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout.readline() == "running\n"
        assert state(run) == "running"
        assert run.is_live()
        driver.send_signal(how)
        driver.wait(300)
        assert state(run) == "lost"
        assert not run.is_live()
        with run.lock():
            assert run.is_live()


def test_steps_are_read_from_any_point_of_one_rank_or_of_all(run):
    write(run, *(row(step, rank) for step in range(1, 6) for rank in range(2)))
    with RunReader(run) as reader:
        assert [(r.step, r.rank) for r in reader.steps(after=3)] == [(4, 0), (4, 1), (5, 0), (5, 1)]
        assert [r.step for r in reader.steps(after=1, rank=1)] == [2, 3, 4, 5]
        assert reader.last_step() == 5


def test_events_are_read_from_any_point_of_one_kind_or_of_all(run):
    journal = Journal(run.database)
    for number in range(12):
        journal.event("warning" if number % 2 else "evaluated", number, number, text="ü", value=number / 2)
    journal.close()
    with RunReader(run) as reader:
        events = list(reader.events())
        assert [event.rank for event in events] == list(range(12))
        assert events[3].data == {"text": "ü", "value": 1.5}
        assert list(reader.events(after=events[8].id)) == events[9:]
        assert [event.rank for event in reader.events(after=events[8].id, kind="warning")] == [9, 11]


def test_a_window_names_the_slowest_worker_by_its_own_work_and_the_share_of_each_phase(run):
    with RunReader(run) as reader:
        assert reader.window() is None
    phases = {"data_s": 0.1, "forward_s": 0.2, "backward_s": 0.3, "optimizer_s": 0.1}
    quick = {**phases, "exchange_s": 0.3, "step_s": 1.0, "samples": 32}
    slow = {**phases, "forward_s": 0.5, "exchange_s": 0.0, "step_s": 1.0, "samples": 32}
    rows = [row(step, 0, loss=step, lr=0.1, epoch=step / 10, **quick) for step in range(1, 31)]
    write(run, *rows, *(row(step, 1, loss=step, **slow) for step in range(1, 31)))
    with RunReader(run) as reader:
        window = reader.window(steps=10)
    assert window is not None
    assert (window.step, window.loss, window.lr, window.epoch) == (30, 30, 0.1, 3.0)
    assert window.samples_per_s == pytest.approx(64)
    assert window.shares == pytest.approx(dict(zip(PHASES, (0.1, 0.35, 0.3, 0.15, 0.1), strict=True)))
    assert (window.slowest, window.slowest_lag) == (1, pytest.approx(1.0 / 0.85 - 1))


@pytest.mark.parametrize("name", ["plain", "two words", "100%", "what?", "a#b", "ümlaut"])
def test_a_run_is_read_wherever_it_lies(run, tmp_path, name):
    write(run, state="finished")
    shutil.copytree(run.path, tmp_path / name)
    assert state(RunDirectory(tmp_path / name)) == "finished"


@pytest.mark.parametrize("content", [None, b"", b"no database " * 100])
def test_a_database_that_is_missing_or_none_is_refused_in_a_sentence(tmp_path, content):
    if content is not None:
        (tmp_path / "run.sqlite").write_bytes(content)
    with pytest.raises(RunError, match=r"run.sqlite: not a readable run database"):
        RunReader(RunDirectory(tmp_path))


def test_a_database_that_was_damaged_is_read_as_far_as_it_can_or_refused_in_a_sentence(run):
    journal = Journal(run.database)
    journal.steps([row(step) for step in range(1, 500)])
    for step in range(1, 100):
        journal.event("evaluated", 0, step, accuracy=step / 100)
    journal.close()
    whole = run.database.read_bytes()
    refused = 0
    for place in range(0, len(whole), 512):
        run.database.write_bytes(whole[:place] + bytes([0xFF, 0xFE] * 8) + whole[place + 16 :])
        try:
            with RunReader(run) as reader:
                reader.state()
                assert len(list(reader.steps())) <= 499
        except RunError as error:
            assert str(error).startswith(f"{run.database}: not a readable run database: ")
            refused += 1
    assert refused
