"""Workers of a lost driver come to another one: who trained is known by the newest that any of them heard."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from volary.driver.attempt.members import TrainingMembers
from volary.driver.heartbeats import HeartbeatService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.errors import RunError
from volary.run.database.journal import Journal, StepRow
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.members import first_number

Come = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def journal() -> Iterator[Journal]:
    journal = Journal(RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n").database)
    journal.start_attempt(0)
    journal.take_over(0)
    yield journal
    journal.close()


class Replaced:
    """A driver that takes the place of a lost one, in a run that began with three workers and a spare one."""

    def __init__(self, journal: Journal) -> None:
        self.watch = FailureDetector(4, Rules(5, 10, 120, spares=1, replaces=0, wait_for_driver_s=60), now=0.0)
        self.members = TrainingMembers(range(3))
        self.hub = HeartbeatService(self.watch, journal, lambda *_: (), members=self.members)
        self.now = 0.0

    def come(self, rank: int, ranks: tuple[int, ...] = (), number: int = 0, requests: Any = ()) -> list[dict[str, Any]]:
        """A worker comes from the lost driver; what it hears."""
        trains = {"ranks": ranks, "number": number, "requests": requests}
        hello = {"rank": rank, "pid": 9, "host": "h", "trains": trains}
        return [message for _, message in self.hub.opened(10 + rank, hello, self.now) if isinstance(message, dict)]

    def look(self, seconds: float = 0.4) -> dict[int, dict[str, Any]]:
        """Time passes; what workers hear then, by rank."""
        told: dict[int, dict[str, Any]] = {}
        for _ in range(round(seconds / 0.4)):
            self.now += 0.4
            for rank in (peer - 10 for peer in self.hub.watch._rank_of):
                self.watch.workers[rank].last_beat_at = self.watch._watched_s
            for peer, message in self.hub.tick(self.now):
                if isinstance(message, dict):
                    told.setdefault(peer - 10, {}).update(message)
        return told


def test_all_that_trained_meet_again_under_a_number_that_the_lost_driver_never_had(journal):
    replaced = Replaced(journal)
    for rank in range(2):
        assert replaced.come(rank)[0]["wait_for_driver_s"] == 60
    assert replaced.look() == {} and replaced.hub.gathers
    replaced.come(2)
    told = replaced.look()
    assert told == {rank: {"members": {"ranks": (0, 1, 2), "number": first_number(1)}} for rank in range(3)}
    assert not replaced.hub.gathers and not replaced.watch.lost
    assert first_number(2) - 1_000_000 > first_number(1) > 1_000_000  # more than members ever change under one driver


def test_the_newest_members_that_any_worker_has_heard_of_count_and_who_was_lost_before_is_not_waited_for(journal):
    replaced = Replaced(journal)
    replaced.come(0)  # has not heard yet that rank 1 was lost, and that 3 took its place
    replaced.come(2, (0, 2, 3), 1)
    assert replaced.look() == {}
    replaced.come(3, (0, 2, 3), 1)
    replaced.look()
    assert replaced.members.now.ranks == (0, 2, 3)
    assert replaced.watch.workers.keys() == {0, 2, 3} and not replaced.watch.lost


def test_what_goes_on_after_a_loss_and_a_leave_that_only_the_lost_driver_saw_is_recorded(journal):
    journal.steps([StepRow(step, rank, *13 * [0]) for rank in range(4) for step in (1, 2)])
    replaced = Replaced(journal)
    for rank in (0, 5):
        replaced.come(rank, (0, 5), 4, [{"type": "members", "number": 3, "leaving": [2]}])
    replaced.look()
    news = {"event": "recovered", "step": 1, "data": {"workers": 2, "lost": [1, 2, 3], "source": "memory"}}
    beat = {"number": 1, "step": 1, "phase": "exchange", "progress": 1, "events": [news]}
    assert list(replaced.hub.received(10, beat, replaced.now))[-1] == (10, {"acknowledged": 1})
    journal.close()
    with RunReader(RunDirectory(Path("runs/it"))) as reader:
        (event,) = reader.events(kind="recovered")
        assert event.data == {"workers": 2, "lost": [1, 3], "left": [2], "source": "memory"}
        assert [(row.rank, row.step) for row in reader.steps(after=1)] == [(0, 2)]


def test_who_trained_and_does_not_come_within_the_bound_is_lost_and_refused_later(journal):
    replaced = Replaced(journal)
    replaced.come(0, (0, 1, 5), 4)
    replaced.come(5, (0, 1, 5), 4)  # that has joined
    replaced.look(10.8)
    assert replaced.members.now.ranks == (0, 5)
    ((lost,),) = [replaced.watch.lost]
    assert (lost.rank, lost.sentence) == (1, "did not come to the new driver within 10 s")
    assert "rank 1 was given up" in replaced.come(1, (0, 1, 5), 4)[0]["end"]


def test_what_workers_were_asked_before_is_not_asked_anew_and_who_knows_less_of_it_hears_it(journal):
    replaced, asked = Replaced(journal), [{"type": "checkpoint"}]
    replaced.come(0)
    replaced.come(1, requests=asked)
    replaced.come(2)
    assert replaced.look()[0]["requests"] == asked
    told = dict(replaced.hub.ask({"type": "rate", "lr": 0.1}))
    assert told[10]["requests"] == [*asked, {"type": "rate", "lr": 0.1}]


def test_a_worker_of_a_lost_driver_has_no_place_in_a_run_that_was_resumed(journal):
    watch = FailureDetector(3, Rules(5, 10, 120), now=0.0)
    hub = HeartbeatService(watch, journal, lambda *_: (), members=TrainingMembers(range(3)))
    trains = {"ranks": [0, 1], "number": 3}
    replies = list(hub.opened(1, {"rank": 0, "pid": 9, "host": "h", "trains": trains}, 0.0))
    assert "there is no place for a rank 0" in replies[0][1]["end"]
    assert not watch.workers[0].pid


@pytest.mark.slow  # as long as a write waits for another one
def test_a_driver_that_was_stopped_in_a_write_is_to_be_ended_first(journal):
    with closing(sqlite3.connect("runs/it/run.sqlite", isolation_level=None)) as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunError, match=r"run\.sqlite is locked: a process was stopped in the middle of a write"):
            journal.take_over(1)
    journal.take_over(1)
    assert journal.attempt == 2


def test_of_two_that_take_a_lost_drivers_place_one_does(journal):
    other = Journal(Path("runs/it/run.sqlite"))
    with pytest.raises(RunError, match="another process was quicker"):
        other.take_over(0)
    other.take_over(1)
    other.close()
    journal.note(state="failed")
    assert journal.replaced
