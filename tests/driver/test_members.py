"""Who trains together: losses change that at once, joins and leaves where all pause; whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver._members import World
from simulation._seeds import every
from volary.driver.attempt.members import TrainingMembers, too_many, why_not_more
from volary.driver.watching.failure_detector import FailureDetector
from volary.run.control.requests import ChangeMembers
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.members import GroupMembers
from volary.session.values.worker_range import WorkerRange


@pytest.fixture
def journal() -> Iterator[Journal]:
    journal = Journal(RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n").database)
    yield journal
    journal.close()


def test_who_leaves_does_so_once_all_have_paused_for_it():
    members = TrainingMembers(range(3))
    members.leave(1)
    request = members.request()
    assert request == ChangeMembers(0, (1,), following=(0, 2)) and members.request() is None
    assert members.now == GroupMembers((0, 1, 2))
    assert members.paused(request) and members.now == GroupMembers((0, 2), 1)
    assert not members.paused(request), "others say it, too"
    assert members.request() is None


def test_who_has_joined_trains_from_the_next_pause_on_behind_the_others():
    members = TrainingMembers(range(2))
    members.ready([3])
    first = members.request()
    assert first == ChangeMembers(0, following=(0, 1, 3)) and members.request() is None
    members.ready([3, 2])
    assert members.request() == ChangeMembers(0, following=(0, 1, 3, 2)), "so that these connect meanwhile"
    assert members.request() is None
    assert members.paused(first) and members.now == GroupMembers((0, 1, 3, 2), 1)


@pytest.mark.parametrize("soon", [True, False])
def test_who_is_asked_to_leave_before_the_others_pause_leaves_with_the_same_change_if_they_have_heard_of_it(soon):
    members = TrainingMembers(range(3))
    members.ready([3])
    first = members.request()
    assert first == ChangeMembers(0, following=(0, 1, 2, 3))
    members.leave(2)
    newer = members.request()
    assert newer == ChangeMembers(0, (2,), following=(0, 1, 3)) and members.request() is None
    if soon:
        assert members.paused(newer) and members.now == GroupMembers((0, 1, 3), 1)
    else:
        assert members.paused(first) and members.now.ranks == (0, 1, 2, 3)  # nobody has what is only of rank 2 yet
        assert members.request() == ChangeMembers(1, (2,), following=(0, 1, 3))
        assert members.paused(ChangeMembers(1, (2,))) and members.now.ranks == (0, 1, 3)
    assert members.request() is None


def test_a_loss_changes_the_members_at_once_and_what_was_asked_is_asked_again_of_those_that_are_left():
    members = TrainingMembers(range(4))
    members.leave(3)
    members.ready([4])
    assert members.request() == ChangeMembers(0, (3,), following=(0, 1, 2, 4))
    assert members.lose({1}, ()) and members.now == GroupMembers((0, 2, 3), 1)
    assert not members.paused(ChangeMembers(0, (3,)))
    assert members.request() == ChangeMembers(1, (3,), following=(0, 2, 4))
    assert members.paused(ChangeMembers(1, (3,))) and members.now == GroupMembers((0, 2, 4), 2)


def test_the_loss_of_who_is_no_member_or_was_to_be_one_changes_nothing():
    members = TrainingMembers(range(2))
    members.ready([2])
    members.request()
    assert not members.lose({2}, ())
    assert members.paused(ChangeMembers(0)) and members.now == GroupMembers((0, 1), 1)


def test_spares_that_cannot_take_over_at_once_join_those_that_are_left_with_the_next_pause():
    members = TrainingMembers(range(3), spares_join=True)
    members.ready([], spares=[3, 4])
    assert members.request() is None, "nobody is lost"
    assert members.lose({1}, [3, 4]) and members.now == GroupMembers((0, 2), 1)
    members.ready([5], spares=[3, 4])
    assert members.request() == ChangeMembers(1, following=(0, 2, 3, 5))
    assert members.paused(ChangeMembers(1)) and members.now == GroupMembers((0, 2, 3, 5), 2)
    members.ready([], spares=[4])
    assert members.request() is None, "the place is taken"
    assert members.lose({3}, [4]) and members.now == GroupMembers((0, 2, 5), 3)
    members.ready([], spares=[4])
    assert members.request() == ChangeMembers(3, following=(0, 2, 5, 4))
    assert not members.lose({4}, ()), "it is lost as it was to come"
    assert members.paused(ChangeMembers(3)) and members.now == GroupMembers((0, 2, 5), 4)


def test_those_that_were_asked_to_leave_stay_if_they_are_all_that_are_left():
    members = TrainingMembers(range(3))
    members.leave(1)
    members.leave(2)
    assert members.lose({0}, ()) and members.now.ranks == (1, 2)
    assert members.leaving == [] and members.request() is None


def test_who_cannot_leave_learns_why():
    members = TrainingMembers(range(2))
    assert members.why_not_leave(7) == "rank 7 does not train in this run; these do: 0, 1"
    members.leave(1)
    assert members.why_not_leave(1) == "rank 1 was asked before, and leaves"
    assert members.why_not_leave(0) == "rank 0 is the last one; accepted: volary stop, which ends the run"


def test_no_fewer_stay_and_no_more_come_than_the_range_says():
    members = TrainingMembers(range(3), WorkerRange(2, 4))
    assert members.why_not_leave(0) == ""
    members.leave(0)
    assert members.why_not_leave(1) == "2 workers train, and strategy.workers is 2..4"
    assert too_many(3, 1, WorkerRange(2, 4)) == too_many(9, 1, None) == ""
    assert too_many(3, 2, WorkerRange(2, 4)) == "3 workers train, and strategy.workers is 2..4"


def test_no_more_join_than_the_session_can_be_trained_with():
    text = "network: lenet\ndata: {source: digits, batch_size: 4}\ntrain: {steps: 9}\nstrategy: {workers: 2}\n"
    directory = RunDirectory.create(Path("runs"), "it", "x", text)
    assert why_not_more(directory, 2, 2) == ""
    assert why_not_more(directory, 2, 3).startswith("2 workers train, and with 5 ")


def test_no_more_join_a_loop_of_one_s_own_than_it_could_be_begun_with():
    text = "function: own.py:train\nstrategy: {workers: 2, recover: memory, partition: {name: data}, memory: null}\n"
    directory = RunDirectory.create(Path("runs"), "it", "x", text)
    assert why_not_more(directory, 2, 1) == ""
    wrong = text.replace("memory: null", "consistency: {name: local, quorum: 2}")
    directory = RunDirectory.create(Path("runs"), "other", "x", wrong)
    assert why_not_more(directory, 2, 1).startswith("2 workers train, and with 3 ")


TROUBLES = ["stops", "is cut off", "loses its connection"]


def played(seed: int, journal: Journal, *, at_once: int = 1, **kinds: Any) -> None:
    """Let members join, leave, be lost, stop and be cut off at any moment, up to so many at once; then look at what has
    come of it. kinds: of the world's parts.
    """
    world = World(seed, journal, workers=2 + seed % 3, spares=seed % 2, **kinds)
    draw, dead = world.draw, set[int]()
    for _ in range(60):
        match draw.choices(["goes on", "joins", "leaves", "interrupted", "dies", "trouble"], [30, 2, 1, 1, 1, 2])[0]:
            case "goes on":
                world.goes_on(draw.choice(world.here))
            case "joins":
                world.joins()
            case "leaves":
                for _ in range(at_once):
                    world.leave(draw.choice(world.here).rank)
            case "interrupted":
                world.interrupted(draw.choice(world.here))
            case hard:
                for victim in draw.sample(world.here, min(at_once, len(world.here))):
                    if not world.survives_without(victim):
                        continue
                    if hard == "dies":
                        world.dies(victim)
                        dead.add(victim.rank)
                    elif not victim.troubled:
                        world.befalls(victim, draw.choice(TROUBLES))
        if draw.random() < 0.5:
            world.time_passes()
    world.settles()
    here = {one.rank for one in world.here if one.group is not None}
    if not world.members.now.ranks:
        assert not here, "a run ends where who had its state has left or was given up"
        return
    (number,) = {one.number for one in world.here if one.group is not None}
    assert here == set(world.members.now.ranks), "those that are left train together"
    assert number == world.members.now.number == len(world.names) - 1
    idle = {one.rank for one in world.here} - here
    assert all(rank < 2 + seed % 3 + seed % 2 for rank in idle), "who has joined trains, and only spares wait"
    gone = {one.rank for one in world.workers.values() if one.gone}
    assert dead <= world.given_up <= gone, "who was given up is told so when it comes back, and ends"
    left = gone - world.given_up
    assert left <= world.asked and not (gone & here)
    untrained = {one.rank for one in world.workers.values() if one.group is None}
    for before, after in zip(world.names, world.names[1:], strict=False):
        assert after.number == before.number + 1
        assert set(before.ranks) & set(after.ranks), "somebody has the state"
        assert set(before.ranks) - set(after.ranks) <= world.handed | world.given_up | untrained
    last = max(world.learnt)
    assert sorted(world.learnt) == list(range(1, last + 1)), "no step is left out"
    assert {one.step for one in world.here if one.group is not None} == {last}


def test_members_that_come_and_go_at_any_moment_train_together_in_the_end_and_leave_no_step_out(journal):
    every(range(60), lambda seed: played(seed, journal))


@pytest.mark.slow  # 600 schedules
@pytest.mark.parametrize("at_once", [1, 2])
def test_members_that_come_and_go_in_many_schedules(journal, at_once):
    every(range(100, 400), lambda seed: played(seed, journal, at_once=at_once))


class AsksOnce(TrainingMembers):
    def lose(self, gone, spares):
        asked = self._asked
        changed = super().lose(gone, spares)
        self._asked = asked
        return changed


class NumbersNoLoss(TrainingMembers):
    def lose(self, gone, spares):
        number, changed = self.now.number, super().lose(gone, spares)
        self.now = replace(self.now, number=number)
        return changed


class LetsAllLeave(TrainingMembers):
    def paused(self, done):
        return super().paused(ChangeMembers(done.number, tuple(self.leaving)))


class LetsTheDismissedIn(FailureDetector):
    def joined(self, peer, rank, pid, host):
        self.workers[rank].dismissed = False
        self.lost = [lost for lost in self.lost if lost.rank != rank]
        return super().joined(peer, rank, pid, host)


class BearsSilence(FailureDetector):
    def _silent(self, worker):
        return iter(())


MISTAKES = {
    "a loss does not void what was asked before it": {"members": AsksOnce},
    "a loss does not change the number of the members": {"members": NumbersNoLoss},
    "who was asked to leave leaves before it has handed over what it has": {"members": LetsAllLeave},
    "who was given up is let in again": {"watch": LetsTheDismissedIn},
    "nobody is silent for too long": {"watch": BearsSilence},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake, journal):
    assert any(is_found(MISTAKES[mistake], seed, journal) for seed in range(200)), "not in 200 schedules"


def is_found(mistake, seed, journal):
    try:
        played(seed, journal, **mistake)
    except (AssertionError, ValueError, KeyError):
        return True
    return False
