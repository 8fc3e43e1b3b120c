"""The watch over workers that are simulated: none that is healthy is given up, every other within its bound."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from driver._play import RULES
from volary.driver.watching.failure_detector import FailureDetector, LostWorker, WorkerBeat

PHASES = ("data", "forward", "backward", "exchange", "optimizer")
SIMULATED = replace(RULES, stuck_after_s=40)
SLOWEST_S = 15.0


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
    trouble: str = ""
    inbox: list[WorkerBeat] = field(default_factory=list)

    def act(self, now: float, arrived: bool) -> None:
        """Go on to the next phase when this one is over. arrived: whether all others have come as far."""
        if now < self.until or self.trouble in ("hangs", "stops", "holds"):
            return
        if PHASES[self.phase] == "exchange" and not arrived:
            return
        self.phase = (self.phase + 1) % len(PHASES)
        if self.phase == 0:
            self.step, self.rows = self.step + 1, self.rows + 1
        slow_s = SLOWEST_S if self.draw.random() < 0.02 and PHASES[self.phase] != "exchange" else 3.0
        self.until, self.progress = now + self.draw.choice((0.01, 0.05, 0.3, slow_s)), self.progress + 1

    def beat(self, now: float) -> None:
        """Beat, with some delay of its thread, unless stopped, or a call holds the interpreter."""
        if now >= self.next_beat and self.trouble not in ("stops", "holds"):
            self.inbox.append(WorkerBeat(self.step, PHASES[self.phase], self.progress, rows=[[0.0]] * self.rows))
            self.rows, self.next_beat = 0, now + 0.25 + self.draw.random()


class World:
    """Some workers in step, one of which may get into trouble, and a driver that is now and then kept from running.

    Any of their phases may take long. hosts: there may be more than one.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.workers = [Acted(rank, self.draw) for rank in range(self.draw.randint(1, 5))]
        self.watch = FailureDetector(len(self.workers), SIMULATED, now=0.0)
        for worker in self.workers:
            self.watch.joined(worker.rank, worker.rank, 1000 + worker.rank, self.draw.choice("ab"))
        self.trouble = self.draw.choice(("", "hangs", "stops", "dies", "holds"))
        self.victim = self.draw.choice(self.workers)
        self.from_s = 20 + 40 * self.draw.random()
        self.lost_sight_s = 0.0
        self.suspects: list[LostWorker] = []

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
                asleep_s = self.draw.choice((0.1,) * 400 + (3.0, 30.0))
                next_look = now + asleep_s
                self.lost_sight_s += asleep_s - 0.1
                self._look(now)
            if self.watch.lost:
                return now
        return None

    def _strike(self, now: float) -> None:
        waits = PHASES[self.victim.phase] == "exchange"
        if self.trouble in ("hangs", "holds") and waits:
            return  # user's code does not run there
        self.victim.trouble, self.from_s = self.trouble, now
        if self.trouble == "dies":
            self.watch.left(self.victim.rank)

    def _look(self, now: float) -> None:
        self.watch.tick(now)  # as the server does: first the clock, then what has come
        self.suspects += self.watch.suspects
        self.watch.suspects.clear()
        here = {worker.rank for worker in self.workers}
        working = {worker.rank for worker in self.workers if worker.trouble != "stops"}
        self.watch.observed(self.watch.quiet & here, self.watch.quiet & working)
        for worker in self.workers:
            for beat in worker.inbox:
                self.watch.on_beat(worker.rank, beat)
            worker.inbox.clear()


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 8))])
def test_no_healthy_worker_is_given_up_and_every_lost_one_is_named_within_its_bound(block):
    for seed in range(block * 50, block * 50 + 50):
        world = World(seed)
        given_up_at = world.play(until_s=300)
        lost, alone = world.watch.lost, len(world.workers) == 1
        healthy = [one for one in world.suspects if one.kind != "stuck"]
        if not world.victim.trouble:
            assert (lost, healthy) == ([], []), f"World({seed}).play(300)"
            continue
        if alone and world.trouble != "dies":
            assert lost == [], f"World({seed}).play(300)"
            continue
        kind = {"hangs": "stuck", "holds": "stuck", "stops": "silent", "dies": "died"}[world.trouble]
        assert (lost[0].rank, lost[0].kind) == (world.victim.rank, kind), f"World({seed}).play(300)"
        if world.trouble != "dies":
            assert lost[0].rank in {one.rank for one in world.suspects}, f"World({seed}).play(300)"
        # others may still be on their way to where they wait
        minutes_s = SIMULATED.stuck_after_s + 2 * SLOWEST_S
        bound_s = {"hangs": minutes_s, "holds": minutes_s, "stops": 10, "dies": 3}[world.trouble]
        assert given_up_at is not None
        assert given_up_at - world.from_s <= bound_s + 2 + world.lost_sight_s, f"World({seed}).play(300)"
