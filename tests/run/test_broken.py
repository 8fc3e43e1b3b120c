"""A database that is missing or broken: kept beside a new one, which says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from volary.run.database.broken import set_broken_aside
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict, read_verdict


@pytest.fixture
def run() -> RunDirectory:
    """Make a run of two attempts, with an event."""
    made = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    journal = Journal(made.database)
    for _ in range(2):
        journal.start_attempt(0)
    for number in range(500):
        journal.event("evaluated", 0, number, accuracy=0.5)
    journal.close()
    Verdict(rank=0, outcome="stopped", step=3, attempt=1).write(made.verdicts)
    return made


def missing(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def no_database(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192:-4096] = bytes(len(data) - 4096 - 8192)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [missing, emptied, no_database, cut, overwritten])
def test_a_new_one_begins_and_says_so_and_the_broken_one_is_kept(run: RunDirectory, damage: Callable[[Path], None]):
    damage(run.database)
    there = run.database.exists()
    content = run.database.read_bytes() if there else b""
    assert RunDirectory.existing("it").path == run.path, "it is a run all the same"
    set_broken_aside(run)
    with RunReader(run) as reader:
        (said,) = reader.events(kind="warning")
        assert reader.state() == "new"
    assert ": a new one begins, without what was recorded" in said.data["text"]
    kept = run.database.with_name("run.sqlite.broken-1")
    assert kept.exists() == there
    assert ("kept as run.sqlite.broken-1" in said.data["text"]) == there
    if there:
        assert kept.read_bytes() == content
    assert read_verdict(run.verdicts, 0, attempt=1) is None, "lives are counted from 0 again"


def test_one_that_is_whole_stays_with_all_that_is_in_it(run: RunDirectory):
    set_broken_aside(run)
    with RunReader(run) as reader:
        assert len(list(reader.events())) == 500
        assert reader.info()["life"] == "1"
    assert read_verdict(run.verdicts, 0, attempt=1) is not None
    assert not list(run.path.glob("*broken*"))


def test_the_log_of_changes_of_a_broken_one_does_not_come_into_the_new_one(run: RunDirectory):
    journal = Journal(run.database)
    journal.event("evaluated", 0, 501)
    log = run.database.with_name("run.sqlite-wal")
    changes = log.read_bytes()
    journal.close()
    run.database.write_bytes(b"no database " * 1000)
    log.write_bytes(changes)
    set_broken_aside(run)
    with RunReader(run) as reader:
        assert [event.kind for event in reader.events()] == ["warning"]
    assert run.database.with_name("run.sqlite.broken-1-wal").read_bytes() == changes
    run.database.write_bytes(b"")
    set_broken_aside(run)
    assert run.database.with_name("run.sqlite.broken-2").exists()
