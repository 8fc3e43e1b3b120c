"""A watch whose clock is the test's, and workers that beat as they are told."""

from __future__ import annotations

from volary.driver.watching.failure_detector import FailureDetector, LostWorker, Rules, WorkerBeat
from volary.driver.watching.worker_status import FEW_STEPS, FIRST_STEPS

RULES = Rules(suspect_after_s=5, give_up_after_s=10, startup_timeout_s=120, stuck_after_s=60)
USED_TO_IT = FIRST_STEPS + FEW_STEPS + 1  # steps after which it is known what is usual


class Play:
    """A watch of two workers that both have come, and its clock. hosts: where they are, by rank."""

    def __init__(
        self, world_size: int = 2, come: int | None = None, hosts: str = "aaaa", rules: Rules = RULES, steps: int = 5
    ) -> None:
        self.watch = FailureDetector(world_size, rules, now=100.0)
        self.now = 100.0
        self.beats: dict[int, WorkerBeat] = {}
        self.suspected: list[tuple[int, str]] = []
        self.sentences: list[str] = []
        self.asked: list[int] = []
        for rank in range(world_size if come is None else come):
            assert self.watch.joined(peer=rank, rank=rank, pid=1000 + rank, host=hosts[rank])
        for step in range(1, steps + 1):  # quick ones
            for rank in range(world_size if come is None else come):
                self.say(rank, "forward", step=step, rows=[[0.0]])
            self.go_on(0.3)

    def say(self, rank: int, phase: str, step: int = 3, progress: int | None = None, **more: object) -> None:
        """A worker beats, with progress unless told otherwise; from now on it repeats that."""
        last = self.beats.get(rank)
        progress = (last.progress + 1 if last else 0) if progress is None else progress
        call, carries = str(more.get("call", "")), bool(more.get("carries"))
        self.beats[rank] = WorkerBeat(step, phase, progress, call=call, carries=carries)
        self.watch.on_beat(rank, WorkerBeat(step, phase, progress, **more))

    def go_on(
        self,
        seconds: float,
        silent: tuple[int, ...] = (),
        working: tuple[int, ...] = (),
        elsewhere: tuple[int, ...] = (),
    ) -> list[LostWorker]:
        """Time passes; all but the silent repeat their last beat. Returns who is lost.

        working: those of the silent whose processes are seen to use the processor. elsewhere: those whose processes
        are on another machine.
        """
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.asked += self.watch.tick(self.now)
            self.suspected += [(one.rank, one.kind) for one in self.watch.suspects]
            self.sentences += [one.sentence for one in self.watch.suspects]
            self.watch.suspects.clear()
            self.watch.observed(
                self.watch.quiet.intersection(silent).difference(elsewhere), self.watch.quiet.intersection(working)
            )
            for rank, beat in self.beats.items():
                if rank not in silent:
                    self.watch.on_beat(rank, beat)
        return self.watch.lost


def together(play: Play, steps: int, wait_s: float = 0.2) -> None:
    """Steps in which all wait for each other for so long."""
    first = 1 + max((beat.step for beat in play.beats.values()), default=0)
    for step in range(first, first + steps):
        for rank in play.watch.workers:
            play.say(rank, "forward", step=step, rows=[[0.0]])
        for rank in play.watch.workers:
            play.say(rank, "exchange", step=step)
        play.go_on(wait_s)
