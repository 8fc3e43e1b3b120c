"""Memory of the queue's runs: it is measured while they run, counted, and known of the next ones."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from faults._queue import until
from jobs._lab import Lab, Program
from volary.jobs.entry import Capacity, Demand, Given, PastUse, QueueEntry
from volary.jobs.estimates import MemoryEstimates
from volary.jobs.machinery import RunMachinery
from volary.jobs.memory import MOST, KnownMemory, keep_bytes, keep_estimate, known_bytes, session_key
from volary.jobs.runner import QueueRunner
from volary.jobs.table import QueueTable
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.machine import clock
from volary.session.spec import Session

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


def test_what_a_run_took_counts_before_what_its_dry_run_says_which_is_no_more_than_the_machine_has():
    key = session_key(SESSION)
    assert KnownMemory.now().of(key, 8 << 30) is None
    keep_estimate(SESSION, 5 << 30)
    assert KnownMemory.now().of(key, 8 << 30) == (5 << 30, "estimate")
    assert KnownMemory.now().of(key, 4 << 30) == (4 << 30, "estimate")
    keep_bytes(SESSION, 1 << 30)
    assert KnownMemory.now().of(key, 8 << 30) == (1 << 30, "measured")


def of_session(name: str, text: str = SESSION, **more: object) -> QueueEntry:
    run = RunDirectory.create(Path("runs"), name, "it", text)
    return QueueEntry(run=str(run.path), demand=Demand(), python=sys.executable, folder=str(Path.cwd()), **more)


def test_a_run_that_waits_learns_what_others_of_its_session_take_once():
    asked, held = of_session("asked", memory_from="asked"), of_session("held", held=True)
    estimates = MemoryEstimates(lambda _: {})
    assert estimates.learnt([asked, held], 8 << 30) == {}
    keep_estimate(SESSION, 5 << 30)
    assert estimates.learnt([asked, held], 8 << 30) == {held.run: (5 << 30, "estimate")}
    assert estimates.learnt([asked, held], 8 << 30) == {}
    keep_bytes(SESSION, 1 << 30)
    assert estimates.learnt([asked, held], 8 << 30) == {held.run: (1 << 30, "measured")}


@pytest.mark.slow  # a dry run
def test_of_a_run_that_waits_for_others_a_dry_run_says_what_it_takes(monkeypatch):
    monkeypatch.setattr("volary.jobs.estimates.NICENESS", 0)  # on a busy machine it would wait for the tests beside it
    Path("session.yaml").write_text("network: softmax\ndata: {source: digits}\ntrain: {device: cpu}\nrun: {name: a}\n")
    text = Session.read("session.yaml").to_yaml()  # as a run's directory has it: every setting counts
    entries = [of_session("a", text), of_session("b", text, state="running")]
    estimates = MemoryEstimates(lambda _: os.environ)
    found = until(lambda: estimates.learnt(entries, 8 << 30))
    estimates.close()
    ((run, (size, how)),) = found.items()
    assert (run, how) == (entries[0].run, "estimate")
    assert 100 << 20 < size < 1 << 30


def test_the_runner_counts_with_what_it_has_learnt_of_a_run_that_waits():
    class Taught(Lab):
        def learnt(self, entries: list[QueueEntry]) -> dict[str, tuple[int, str]]:
            return {"b": (9, "estimate")} if "b" in self.rows and "a" in self.rows else {}

    lab = Taught(Capacity((0, 1), 10))
    lab.submit("a", Program(100, ["finished"]), demand=Demand(1, 2))
    lab.submit("b", Program(100, ["finished"]), demand=Demand(1, 2))
    QueueRunner(lab, lab).look()
    assert (lab.rows["b"].state, lab.rows["b"].demand) == ("waiting", Demand(1, 9))
    assert lab.rows["b"].memory_from == "estimate"


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


def test_what_a_run_had_of_its_machine_is_kept_from_its_start_to_its_end_but_not_over_a_new_start_of_that():
    run = RunDirectory.create(Path("runs"), "a", "it", SESSION)
    with QueueTable(Path("queue")) as table:
        machinery = RunMachinery(table)
        moment = machinery.moment()
        entry = QueueEntry(
            run=str(run.path), demand=Demand(1, 5), given=Given((1,)), boot=moment.boot, started_s=moment.now_s
        )
        machinery.keep_used(msgspec.structs.replace(entry, boot="another"), "lost")
        before = clock.at(moment.now_s)
        for _ in range(2):  # a runner that was killed meanwhile looks again
            machinery.keep_used(entry, "stopped")
        (used,) = table.past()
        assert (used.run, used.given, used.memory_bytes, used.began_at) == (entry.run, Given((1,)), 5, before)
        assert before <= used.ended_at <= clock.now_s()
        with closing(Journal(run.database)) as journal:
            journal.note(ended_at=before + 1e-6)  # as its driver writes it
        machinery.keep_used(entry, "failed")
        (used,) = table.past()
        assert used.ended_at == before + 1e-6


def test_of_the_past_the_newest_is_kept(monkeypatch):
    monkeypatch.setattr("volary.jobs.table.PAST_USES", 3)
    with QueueTable(Path("queue")) as table:
        for number in range(5):
            entry = QueueEntry(run="a", demand=Demand(), started_s=number)
            table.keep_past(entry, PastUse("a", Given(()), 0, number, number + 1))
        assert [one.began_at for one in table.past()] == [2, 3, 4]
