"""One process writes a run's database; a reader, a kill or a full disk does not hurt it."""

import math
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from volary.errors import RunError
from volary.run.database.journal import Journal, StepRow
from volary.run.database.kept_contributions import KeptContributions
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
from volary.run.database.journal import Journal, StepRow
journal = Journal(Path(sys.argv[1]))
journal.note(state="running")
for step in itertools.count(1):
    journal.steps([StepRow(step, rank, *13 * [0]) for rank in range(2)])
    if step == 50:
        print("fifty", flush=True)
"""
FULL_DISK = """
import resource, sys
from pathlib import Path
from volary.errors import VolaryError
from volary.run.database.journal import Journal, StepRow

def allow(file_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

path = Path(sys.argv[1])
journal = Journal(path)
journal.start_attempt(0)
journal.steps([StepRow(1, 0, *13 * [0])])
allow(path.with_name(path.name + "-wal").stat().st_size)
for step in range(2, 12):
    journal.steps([StepRow(step, 0, *13 * [0])])
journal.event("checkpoint_failed", reason="full")
assert journal.dropped == 11, journal.dropped
assert journal.fault.endswith(": 11 records of this run were not written"), journal.fault
try:
    journal.start_attempt(0)
except VolaryError as error:
    print(error, error.exit_code)
allow(resource.RLIM_INFINITY)
journal.steps([StepRow(12, 0, *13 * [0])])
assert journal.dropped == 11
journal.close()
allow(100)
try:
    Journal(path.with_name("new.sqlite"))
except VolaryError as error:
    print(error, error.exit_code)
"""
ENDED_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from volary.run.database.journal import Journal

path = Path(sys.argv[1])
journal = Journal(path)
journal.start_attempt(0)
journal.note(state="running")
written = path.with_name(path.name + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (written, resource.RLIM_INFINITY))
journal.end(state="failed", message="the disk is full" + 5000 * "!", steps_done=11)
assert journal.dropped == 3, journal.fault
"""


def row(step, rank=0, **values):
    return StepRow(**{**dict.fromkeys(StepRow._fields, 0), "step": step, "rank": rank, **values})


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


@pytest.fixture
def journal(run):
    journal = Journal(run.database)
    yield journal
    journal.close()


def written(run):
    with RunReader(run) as reader:
        return [(row.step, row.rank) for row in reader.steps()]


def test_a_new_life_counts_on_and_takes_back_what_was_beyond_its_start(run, journal):
    assert journal.start_attempt(0) == 0
    journal.steps([row(step, rank) for step in range(1, 6) for rank in range(2)])
    for step in (2, 4):
        journal.metrics(step, {"accuracy": step / 10})
    journal.event("failed")
    assert journal.start_attempt(3) == 1
    journal.event("resumed", from_step=3)
    assert written(run) == [(step, rank) for step in (1, 2, 3) for rank in range(2)]
    with RunReader(run) as reader:
        assert reader.metrics() == {"accuracy": [(2, 0.2)]}
        assert [(event.kind, event.attempt) for event in reader.events()] == [("failed", 0), ("resumed", 1)]
        assert reader.info()["life"] == "1"


def test_of_workers_that_number_what_they_contribute_rows_are_taken_back_by_what_the_checkpoint_has(run, journal):
    journal.start_attempt(0)
    journal.note(workers=4)
    numbers = {0: 40, 1: 25, 2: 20, 3: 20}
    journal.steps([row(number, rank) for rank, last in numbers.items() for number in range(1, last + 1)])
    journal.metrics(30, {"accuracy": 0.5})
    journal.metrics(31, {"accuracy": 0.6})
    journal.start_attempt(30, KeptContributions({0: 38, 1: 16, 2: 0}, before=5))
    kept = {0: 38, 1: 16, 3: 5}
    assert written(run) == sorted((number, rank) for rank, last in kept.items() for number in range(1, last + 1))
    with RunReader(run) as reader:
        assert reader.metrics() == {"accuracy": [(30, 0.5)]}
        assert reader.totals().samples == sum(step.samples for step in reader.steps())
        assert {group.rank: group.count for group in reader.view(1, 64, 1).groups} == kept


def test_a_step_or_fact_that_is_written_again_replaces_the_older_one(run, journal):
    for value in (1.0, 2.0):
        journal.steps([row(1, loss=value)])
        journal.metrics(1, {"loss": value})
        journal.note(best=value)
    with RunReader(run) as reader:
        assert [step.loss for step in reader.steps()] == [2.0]
        assert reader.metrics() == {"loss": [(1, 2.0)]}
        assert reader.info() == {"best": "2.0"}


def test_losses_that_are_no_numbers_come_back_as_such(run, journal):
    journal.steps([row(1, loss=math.nan), row(2, loss=math.inf)])
    journal.metrics(2, {"loss": math.nan, "norm": -math.inf})
    with RunReader(run) as reader:
        assert math.isnan(next(reader.steps()).loss)
        assert [step.loss for step in reader.steps(after=1)] == [math.inf]
        assert math.isnan(reader.metrics()["loss"][0][1])
        assert reader.metrics()["norm"] == [(2, -math.inf)]


def test_threads_may_write_at_once(run, journal):
    def write(rank):
        for step in range(1, 51):
            journal.steps([row(step, rank)])
            journal.event("evaluated", rank, step)

    threads = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written(run) == [(step, rank) for step in range(1, 51) for rank in range(4)]
    with RunReader(run) as reader:
        assert len(list(reader.events())) == 200
    assert journal.dropped == 0


def test_readers_look_while_it_is_written_and_a_kill_leaves_whole_records(run):
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(run.database)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "fifty\n"
        seen = 0
        with RunReader(run) as reader:
            while seen < 200:
                steps = [row.step for row in reader.steps()]
                assert len(steps) >= seen
                assert steps == [step for step in range(1, len(steps) // 2 + 1) for _ in range(2)]
                seen = len(steps)
        writer.kill()
    steps = written(run)
    assert len(steps) >= seen
    assert steps == [(step, rank) for step in range(1, len(steps) // 2 + 1) for rank in range(2)]
    journal = Journal(run.database)
    journal.start_attempt(10)
    journal.close()
    assert len(written(run)) == 20


def test_a_closed_run_is_whole_in_its_one_file_also_while_a_reader_has_it_open(run, tmp_path):
    journal = Journal(run.database)
    with RunReader(run) as reader:
        journal.steps([row(step) for step in range(1, 100)])
        assert reader.last_step() == 99
        journal.close()
        (tmp_path / "copy").mkdir()
        shutil.copy(run.database, tmp_path / "copy/run.sqlite")
    with RunReader(RunDirectory(tmp_path / "copy")) as copy:
        assert copy.last_step() == 99


def test_a_database_that_somebody_holds_holds_nobody_up_and_what_is_lost_is_counted_and_said(run, monkeypatch):
    monkeypatch.setattr("volary.run.database.journal.MOST_WAITING", 10)
    lost: list[str] = []
    journal = Journal(run.database, behind=True)
    journal.start_attempt(0)
    with closing(sqlite3.connect(run.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # a writer that waited for it would wait for this test
        for step in range(1, 15):
            journal.steps([row(step)])
        journal.events([("checkpoint", 0, 14, {})], lambda: lost.append("checkpoint"))
        other.execute("ROLLBACK")
        other.execute("BEGIN")  # and somebody who reads, as long as they like
        other.execute("SELECT * FROM steps").fetchall()
        journal.end(state="finished")
        journal.metrics(15, {"accuracy": 1.0})
        journal.close()
    assert (journal.dropped, lost) == (5, ["checkpoint"])
    with RunReader(run) as reader:
        assert [one.step for one in reader.steps()] == list(range(1, 11))
        assert (reader.info()["state"], reader.metrics()) == ("finished", {"accuracy": [(15, 1.0)]})
        (said,) = reader.events(kind="warning")
        assert said.data["text"].endswith("is slow: 5 records of this run were not written")


def test_a_writer_whose_database_is_spoilt_says_so_at_the_next_record(run):
    journal = Journal(run.database, behind=True)
    journal.start_attempt(0)
    with closing(sqlite3.connect(run.database)) as other:
        other.execute("DROP TABLE metrics")
        other.execute("CREATE TABLE metrics (step INTEGER CHECK (step < 0), name TEXT, value REAL, at REAL)")
        other.commit()
    journal.metrics(1, {"accuracy": 1.0})
    with pytest.raises(sqlite3.IntegrityError):
        while True:
            journal.note(state="running")
    journal.close()


def test_a_full_disk_is_counted_and_said_and_writing_goes_on_when_there_is_room(run):
    said = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(run.database)], capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    refused = said.stdout.splitlines()
    assert len(refused) == 2
    assert all(": cannot be written: " in line for line in refused)
    assert written(run) == [(1, 0), (12, 0)]


def test_a_full_disk_does_not_lose_how_the_run_ended_until_its_next_life(run):
    said = subprocess.run(
        [sys.executable, "-c", ENDED_ON_A_FULL_DISK, str(run.database)], capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    with RunReader(run) as reader:
        assert reader.state() == "failed"
        assert reader.info()["steps_done"] == "11"
        assert reader.info()["message"].startswith("the disk is full")
    with closing(Journal(run.database)) as journal:
        journal.start_attempt(0)
        journal.note(state="running")
    with RunReader(run) as reader:
        assert reader.state() == "lost"


def test_a_database_that_is_none_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"no database " * 100)
    with pytest.raises(RunError, match=r"run.sqlite: cannot be written: file is not a database"):
        Journal(path)


def test_what_servers_counted_in_one_life_says_nothing_of_the_next(run, journal):
    journal.start_attempt(0)
    journal.note(steps_now=3, counted_from=1.5, counted_from_step=1, best=0.5)
    journal.start_attempt(3)
    with RunReader(run) as reader:
        assert reader.info() == {"best": "0.5", "life": "1"}


def test_writer_that_was_replaced_by_a_newer_life_writes_no_more():
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    old, new = Journal(directory.database), Journal(directory.database)
    old.start_attempt(0)
    old.note(state="running")
    new.start_attempt(0)
    old.note(state="failed")
    old.event("failed")
    assert (old.replaced, new.replaced, old.dropped) == (True, False, 0)
    new.event("started")
    old.close()
    new.close()
    with RunReader(directory) as reader:
        assert [(event.kind, event.attempt) for event in reader.events()] == [("started", 1)]
        assert (reader.info()["state"], reader.info()["life"]) == ("running", "1")
