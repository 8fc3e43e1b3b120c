"""The watch: who counts as lost, and when. A plain state machine, so its clock is ours."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from volary.driver.watch import Beat, Lost, Rules, Watch
from volary.run.verdict import Verdict

RULES = Rules(suspect_after_s=5, give_up_after_s=10, startup_timeout_s=120)


class Play:
    """A watch of two workers that both have come, and its clock."""

    def __init__(self, world_size: int = 2, come: int = 2) -> None:
        self.watch = Watch(world_size, RULES, now=100.0)
        self.now = 100.0
        self.beats: dict[int, Beat] = {}
        self.suspected: list[tuple[int, str]] = []
        self.asked: list[int] = []
        for rank in range(come):
            assert self.watch.joined(peer=rank, rank=rank, pid=1000 + rank, host="here")

    def say(self, rank: int, phase: str, step: int = 3, progress: int | None = None, **more: object) -> None:
        """A worker beats, with progress unless told otherwise; from now on it repeats that."""
        last = self.beats.get(rank)
        progress = (last.progress + 1 if last else 0) if progress is None else progress
        self.beats[rank] = Beat(step, phase, progress, rows=[[0.0]], **more)
        self.watch.heard(rank, self.beats[rank])

    def go_on(self, seconds: float, silent: tuple[int, ...] = ()) -> list[Lost]:
        """Time passes; all but the silent repeat their last beat. Returns who is lost."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.asked += self.watch.tick(self.now)
            self.suspected += [(one.rank, one.kind) for one in self.watch.suspects]
            self.watch.suspects.clear()
            for rank, beat in self.beats.items():
                if rank not in silent:
                    self.watch.heard(rank, beat)
        return self.watch.lost


def test_silent_worker_is_suspected_and_then_given_up():
    play = Play()
    play.say(0, "forward")
    play.say(1, "forward")
    for _ in range(6):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    assert play.suspected == [(1, "silent")]
    assert play.watch.lost == []
    play.say(0, "exchange")
    (lost,) = play.go_on(5, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")
    assert lost.sentence == "has been silent for 10 s: it is stopped, or its host is gone"
    assert play.asked == []  # whoever is silent cannot tell its stack


def test_worker_that_beats_without_progress_is_asked_for_its_stack_and_given_up():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    assert play.go_on(9.9) == []
    assert (play.suspected, play.asked) == ([(1, "stuck")], [1])
    play.say(1, "forward", progress=play.beats[1].progress, stack="File x, in loop")
    (lost,) = play.go_on(0.5)
    assert (lost.rank, lost.sentence) == (1, "is alive but has made no progress for 10 s")
    assert play.watch.workers[1].stack == "File x, in loop"


def test_worker_that_waits_in_the_exchange_for_another_is_excused():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    for _ in range(30):  # slow, but it moves
        assert play.go_on(4.5) == []
        play.say(1, "forward")
    assert play.suspected == []


def test_nobody_counts_as_stuck_while_somebody_is_silent():
    play = Play()
    play.say(0, "forward")  # stands still since before rank 1 fell silent
    play.go_on(1)
    play.say(1, "forward")
    lost = play.go_on(30, silent=(1,))
    assert [(one.rank, one.kind) for one in lost] == [(1, "silent")]


def test_exchange_that_is_slow_after_a_slow_worker_blames_nobody():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    play.go_on(4)
    play.say(1, "backward")
    play.go_on(4)
    play.say(1, "exchange")  # rank 0 has stood still for 8 s, but only now they all wait
    assert play.go_on(4.5) == []
    assert play.suspected == []


def test_exchange_in_which_all_wait_for_ever_names_who_is_furthest_behind_without_blaming_it():
    play = Play()
    play.say(0, "exchange", step=4)
    play.say(1, "exchange", step=3)
    (lost,) = play.go_on(10.5)
    assert lost.rank == 1
    assert lost.sentence == "waits in the exchange, like all others, for 10 s: a link between hosts may be cut"


def test_worker_that_does_not_come_is_missing_and_the_others_are_not_blamed_for_waiting():
    play = Play(come=1)
    play.watch.heard(0, Beat(0, "exchange", 0))
    play.beats[0] = Beat(0, "exchange", 0)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind, lost.sentence) == (1, "missing", "did not come within 120 s")


@pytest.mark.parametrize("phase", ["starting", "checkpoint", "between steps"])
def test_what_no_step_measures_may_take_as_long_as_the_start(phase):
    play = Play(world_size=1, come=1)
    play.say(0, phase)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert lost.kind == "stuck"


def test_first_step_of_a_resumed_life_may_take_as_long_as_the_start():
    play = Play(world_size=1, come=1)
    play.beats[0] = Beat(step=500, phase="forward", progress=9)  # no rows: no step was done in this life
    assert play.go_on(119) == []
    assert len(play.go_on(2)) == 1


def test_phase_may_take_five_times_its_longest_but_another_phase_may_not():
    play = Play(world_size=1, come=1)
    play.say(0, "forward")
    assert play.go_on(4) == []  # a forward pass of 4 s
    play.say(0, "backward")
    play.say(0, "forward")
    assert play.go_on(19) == []
    assert play.suspected == [(0, "stuck")]
    assert len(play.go_on(2)) == 1
    other = Play(world_size=1, come=1)
    other.say(0, "forward")
    other.go_on(4)
    other.say(0, "backward")
    assert len(other.go_on(10.5)) == 1


def test_network_that_is_slow_from_its_first_step_is_measured_by_that():
    play = Play(world_size=1, come=1)
    play.beats[0] = Beat(step=0, phase="forward", progress=1)
    play.go_on(15)
    play.say(0, "optimizer", step=1)
    play.say(0, "forward", step=1)
    assert play.go_on(15) == []
    assert play.suspected == []


def test_worker_that_recovers_is_suspected_anew_the_next_time():
    play = Play(world_size=1, come=1)
    play.say(0, "forward")
    for _ in range(2):
        play.go_on(7, silent=(0,))
        play.say(0, "forward")
        play.go_on(1)
    assert play.suspected == [(0, "silent"), (0, "silent")]
    assert play.watch.lost == []


@pytest.mark.parametrize("asleep_s", [1.0, 30.0, 4000.0])
def test_watch_that_was_itself_stopped_blames_nobody_and_goes_on_watching(asleep_s):
    play = Play()
    play.say(0, "forward")
    play.say(1, "forward")
    for _ in range(20):
        play.now += asleep_s  # the server ticks before it reads what came meanwhile
        play.go_on(0.1)
        play.say(0, "forward")
        play.say(1, "forward")
    assert play.suspected == []
    play.go_on(10.5, silent=(1,))
    assert play.watch.lost[0].rank == 1


def test_connection_that_ends_without_a_goodbye_is_a_death_unless_it_comes_back_and_with_one_is_none():
    play = Play()
    bye = Verdict(rank=0, outcome="finished", step=9)
    play.say(0, "between steps", bye=bye)
    play.watch.heard(0, Beat(9, "between steps", 99))  # a beat that was on its way changes nothing
    play.watch.left(0)
    assert play.watch.lost == []
    play.watch.left(1)
    assert play.go_on(2.9) == []
    assert not play.watch.joined(peer=6, rank=1, pid=7, host="here")  # somebody else
    assert play.watch.joined(peer=7, rank=1, pid=1001, host="here")
    assert play.go_on(2.9) == []
    play.watch.left(1)  # of the connection that was replaced
    assert play.watch.workers[1].here
    play.watch.left(7)
    assert play.go_on(3.2) == [Lost(1, "died", "died")]
    assert not play.watch.joined(peer=8, rank=1, pid=1001, host="here")
    assert play.watch.everyone_left
    assert play.watch.workers[0].goodbye == bye


def test_who_is_away_when_the_run_ends_has_died():
    play = Play()
    play.watch.left(1)
    play.watch.conclude()
    assert play.watch.lost == [Lost(1, "died", "died")]


def test_place_is_given_once():
    play = Play(come=1)
    assert not play.watch.joined(peer=7, rank=0, pid=5, host="there")
    assert not play.watch.joined(peer=8, rank=2, pid=5, host="there")
    assert play.watch.worker_at(7) is None
    play.watch.heard(7, Beat(1, "forward", 1))
    play.watch.left(7)
    assert play.watch.lost == []


def test_run_that_goes_on_without_a_silent_worker_judges_those_that_are_left_as_before():
    play = Play(world_size=3, come=3)
    for rank in range(3):
        play.say(rank, "forward")
    for _ in range(12):
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(0.9, silent=(2,))
    assert [lost.rank for lost in play.watch.lost] == [2]
    play.watch.dismiss(2)
    play.say(0, "exchange")
    lost = play.go_on(11, silent=(2,))
    assert [(one.rank, one.kind) for one in lost] == [(2, "silent"), (1, "stuck")]


def test_worker_that_comes_back_after_it_was_given_up_is_not_heard():
    play = Play()
    play.say(0, "forward")
    for _ in range(12):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    play.watch.dismiss(1)
    play.watch.heard(1, Beat(9, "forward", 9))
    assert play.watch.workers[1].step == 0
    assert not play.watch.joined(peer=5, rank=1, pid=77, host="here")


PHASES = ("data", "forward", "backward", "exchange", "optimizer")


@dataclass
class Acted:
    """A worker of the simulation. until: when its phase ends; infinite while it waits for others."""

    rank: int
    draw: random.Random
    step: int = 0
    phase: int = 0
    progress: int = 0
    until: float = 0.0
    rows: int = 0
    next_beat: float = 0.0
    longest_s: float = 0.0
    trouble: str = ""
    inbox: list[Beat] = field(default_factory=list)

    def act(self, now: float, arrived: bool) -> None:
        """Go on to the next phase when this one is over. arrived: whether all others have come as far."""
        if now < self.until or self.trouble in ("hangs", "stops"):
            return
        if PHASES[self.phase] == "exchange" and not arrived:
            return
        self.phase = (self.phase + 1) % len(PHASES)
        if self.phase == 0:
            self.step, self.rows = self.step + 1, self.rows + 1
        took_s = self.draw.choice((0.01, 0.05, 0.3, 3.0))
        if PHASES[self.phase] != "exchange":
            self.longest_s = max(self.longest_s, took_s)
        self.until, self.progress = now + took_s, self.progress + 1

    def beat(self, now: float) -> None:
        """Beat, with some delay of its thread, unless stopped."""
        if now >= self.next_beat and self.trouble != "stops":
            self.inbox.append(Beat(self.step, PHASES[self.phase], self.progress, rows=[[0.0]] * self.rows))
            self.rows, self.next_beat = 0, now + 0.25 + self.draw.random()


class World:
    """Some workers in step, one of which may get into trouble, and a driver that is now and then kept from running."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.workers = [Acted(rank, self.draw) for rank in range(self.draw.randint(1, 5))]
        self.watch = Watch(len(self.workers), RULES, now=0.0)
        for worker in self.workers:
            self.watch.joined(worker.rank, worker.rank, 1000 + worker.rank, "here")
        self.trouble = self.draw.choice(("", "hangs", "stops", "dies"))
        self.victim = self.draw.choice(self.workers)
        self.from_s = 20 + 40 * self.draw.random()
        self.lost_sight_s = 0.0
        self.suspects: list[Lost] = []

    def play(self, until_s: float) -> float | None:
        """Play; when the first one was given up."""
        now, next_look = 0.0, 0.0
        while now < until_s:
            now += 0.05
            if self.trouble and now >= self.from_s and self.victim.step and not self.victim.trouble:
                self._strike(now)
            for worker in self.workers:
                place = (worker.step, worker.phase)
                worker.act(now, all((other.step, other.phase) >= place for other in self.workers))
                worker.beat(now)
            if now >= next_look:
                asleep_s = self.draw.choice((0.1,) * 200 + (3.0, 30.0))
                next_look = now + asleep_s
                self.lost_sight_s += asleep_s - 0.1
                self._look(now)
            if self.watch.lost:
                return now
        return None

    def _strike(self, now: float) -> None:
        waits = PHASES[self.victim.phase] == "exchange"
        if self.trouble == "hangs" and waits:
            return  # user's code does not run there
        self.victim.trouble, self.from_s = self.trouble, now
        if self.trouble == "dies":
            self.watch.left(self.victim.rank)

    def _look(self, now: float) -> None:
        self.watch.tick(now)  # as the server does: first the clock, then what has come
        self.suspects += self.watch.suspects
        self.watch.suspects.clear()
        for worker in self.workers:
            for beat in worker.inbox:
                self.watch.heard(worker.rank, beat)
            worker.inbox.clear()


@pytest.mark.parametrize("block", range(4))
def test_no_healthy_worker_is_blamed_and_every_lost_one_is_named_within_its_bound(block):
    for seed in range(block * 50, block * 50 + 50):
        world = World(seed)
        given_up_at = world.play(until_s=300)
        if not world.victim.trouble:
            assert (world.watch.lost, world.suspects) == ([], []), f"World({seed}).play(300)"
            continue
        kind = {"hangs": "stuck", "stops": "silent", "dies": "died"}[world.trouble]
        first = world.watch.lost[0]
        assert (first.rank, first.kind) == (world.victim.rank, kind), f"World({seed}).play(300)"
        if world.trouble != "dies":
            assert first.rank in {one.rank for one in world.suspects}, f"World({seed}).play(300)"
        bound_s = {"hangs": max(10, 5 * (world.victim.longest_s + 1.5)), "stops": 10, "dies": 3}[world.trouble]
        assert given_up_at is not None
        assert given_up_at - world.from_s <= bound_s + 2 + world.lost_sight_s, f"World({seed}).play(300)"
