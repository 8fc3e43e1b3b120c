"""The queue's file: written by several at once, damaged, deleted; the directories of its runs are what counts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from volary.errors import VolaryError
from volary.jobs.entry import Demand, QueueEntry, entry_of
from volary.jobs.table import QueueTable
from volary.run.directory import RunDirectory
from volary.run.lock import RunLock


def run(name: str) -> RunDirectory:
    return RunDirectory.create(Path("runs"), name, "it", "network: lenet\n")


def queued(table: QueueTable, name: str, **more: object) -> QueueEntry:
    entry = QueueEntry(run=str(run(name).path), demand=Demand(1), **more)
    return table.add(entry, {"PATH": "/bin"})


def names(table: QueueTable) -> list[str]:
    return [Path(one.run).name for one in table.entries()]


def test_runs_stand_in_the_order_of_priority_and_then_as_they_came():
    with QueueTable(Path("queue")) as table:
        for name, priority in (("a", 0), ("b", 0), ("c", 5)):
            queued(table, name, priority=priority)
        assert names(table) == ["c", "a", "b"]
        assert table.environment(str(Path("runs/a").absolute())) == {"PATH": "/bin"}


def test_a_change_is_in_the_run_s_directory_too_and_a_run_that_leaves_has_nothing_there():
    with QueueTable(Path("queue")) as table:
        entry = queued(table, "a")
        table.change(entry.run, lambda one: msgspec.structs.replace(one, held=True))
        assert entry_of(RunDirectory("runs/a")) == msgspec.structs.replace(entry, held=True)
        table.remove(entry.run)
        assert (entry_of(RunDirectory("runs/a")), names(table)) == (None, [])


def test_each_that_has_the_file_open_sees_what_it_and_others_have_written_and_nothing_that_was_taken_back(monkeypatch):
    with QueueTable(Path("queue")) as one, QueueTable(Path("queue")) as other:
        assert names(one) == names(other) == []
        queued(one, "a")
        assert names(one) == names(other) == ["a"]
        queued(other, "b")
        one.entries().clear()  # a list of the caller's own
        assert names(one) == names(other) == ["a", "b"]
        one.remove(str(Path("runs/a").absolute()))
        assert names(one) == names(other) == ["b"]

        def looked_then_failed(folder: Path) -> None:
            assert names(one) == ["b", "c"], "while it is written"
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(one, "_know", looked_then_failed)
        with pytest.raises(VolaryError, match="No space left"):
            queued(one, "c")
        assert names(one) == names(other) == ["b"]


@pytest.mark.parametrize("damage", [b"no database at all", None])
def test_a_file_that_is_damaged_or_gone_is_rebuilt_from_the_directories_and_that_is_said(damage, monkeypatch):
    with QueueTable(Path("queue")) as table:
        for name, priority in (("a", 0), ("b", 7), ("c", 0)):
            queued(table, name, priority=priority)
        before, file = table.entries(), Path("queue/queue.sqlite").absolute()
    file.unlink() if damage is None else file.write_bytes(damage)
    folder = Path("queue").absolute()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with QueueTable(folder) as table:
        assert table.entries() == before
        assert table.remarks[-1] == "the queue was rebuilt from the directories of its 3 runs"
        kept = f"{file} was damaged, and is kept as damaged-1.sqlite"
        assert table.remarks[:-1] == ([] if damage is None else [kept])


def test_who_has_the_old_file_open_sees_that_it_was_replaced():
    with QueueTable(Path("queue")) as table:
        assert table.is_current()
        Path("queue/queue.sqlite").unlink()
        assert not table.is_current()
        with QueueTable(Path("queue")):
            assert not table.is_current()


def test_a_runner_leaves_only_an_idle_queue_and_is_gone_before_anybody_can_add_to_it():
    with QueueTable(Path("queue")) as table, RunLock(table.runner_lock) as lock:
        entry = queued(table, "a")
        assert not table.left_idle(lock.release)
        assert table.has_runner()
        table.change(entry.run, lambda one: msgspec.structs.replace(one, held=True))
        assert table.left_idle(lock.release)
        assert not table.has_runner()


def test_a_full_disk_is_said_in_a_sentence(monkeypatch):
    with QueueTable(Path("queue")) as table:
        entry = queued(table, "a")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("volary.jobs.table.write_entry", full)
        with pytest.raises(VolaryError, match="the queue in queue cannot be written: No space left on device"):
            table.change(entry.run, lambda one: msgspec.structs.replace(one, held=True))
        assert table.entries() == [entry]
