"""What runs of the queue take of memory: seen while they run, counted, and known of the next ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jobs._lab import Lab, Program
from volary.jobs.entry import Capacity, Demand, QueueEntry
from volary.jobs.machinery import RunMachinery
from volary.jobs.memory import MOST, keep_bytes, known_bytes
from volary.jobs.runner import QueueRunner
from volary.jobs.table import QueueTable
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

SESSION = "network: lenet\ndata:\n  batch_size: 64\ntrain:\n  seed: 1\nrun:\n  name: a\n"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_a_run_takes_is_known_of_those_that_differ_in_name_and_seed_alone():
    keep_bytes(SESSION, 5 << 30)
    assert known_bytes(SESSION.replace("name: a", "name: b").replace("seed: 1", "seed: 2")) == 5 << 30
    assert known_bytes(SESSION.replace("64", "128")) is None


def test_of_many_sessions_the_newest_are_kept():
    for number in range(3):
        keep_bytes(SESSION.replace("64", str(number)), 1)
    keep_bytes(SESSION.replace("64", "0"), 2)
    kept = msgspec.json.decode(Path("cache/volary/memory-of-sessions.json").read_bytes())
    assert list(kept.values()) == [1, 1, 2]
    assert len(kept) <= MOST


def test_a_run_that_takes_more_than_it_was_to_is_counted_with_that():
    class Greedy(Lab):
        def used_bytes(self, entry: QueueEntry) -> int:
            return 7

    lab = Greedy(Capacity((0, 1), 10))
    lab.submit("a", Program(100, ["finished"]), demand=Demand(1, 2))
    QueueRunner(lab, lab).look()
    lab.submit("b", Program(100, ["finished"]), demand=Demand(1, 4))
    QueueRunner(lab, lab).look()
    assert (lab.rows["a"].used_bytes, lab.rows["a"].demand) == (7, Demand(1, 7))
    assert (lab.rows["a"].state, lab.rows["b"].state) == ("running", "waiting")


def test_what_a_run_took_is_kept_when_it_has_ended_and_more_than_it_was_to_take_is_said_in_it():
    run = RunDirectory.create(Path("runs"), "a", "it", SESSION)
    entry = QueueEntry(run=str(run.path), demand=Demand(), used_bytes=3 << 30, asked_bytes=2 << 30)
    with QueueTable(Path("queue")) as table:
        machinery = RunMachinery(table)
        machinery.keep_used(entry, "stopped")
        machinery.keep_used(msgspec.structs.replace(entry, used_bytes=1 << 30, asked_bytes=None), "stopped")
        assert known_bytes(SESSION) == 3 << 30, "one that was stopped may have taken more later"
        machinery.keep_used(msgspec.structs.replace(entry, used_bytes=1 << 30, asked_bytes=None), "finished")
        assert known_bytes(SESSION) == 1 << 30
    with RunReader(run) as reader:
        (warning,) = reader.events(kind="warning")
    assert warning.data["text"] == "it took 3.00 GiB of memory, and was to take 2.00 at most"
