"""Schedules of a pipeline: which rank computes what of which micro-batch, and in which order.

A schedule is a few rules. Ranks that follow them, each as soon as it can, are simulated tick by tick: so whatever comes
of it can be carried out in that order, without a wait that never ends. Micro-batches pass each stage in rising order,
forward and backward, so gradients are added in the same order in all schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Literal

Work = Literal["forward", "backward", "inputs", "weights"]
TICKS: Mapping[Work, int] = {"forward": 1, "backward": 2, "inputs": 1, "weights": 1}


@dataclass(frozen=True)
class StagePass:
    """One pass of a rank through a stage. inputs: the backward pass to a stage's inputs alone; weights: to its
    parameters.
    """

    work: Work
    stage: int
    micro_batch: int


@dataclass(frozen=True)
class StageSchedule:
    """Rules. Of the passes that could be next, a rank begins a forward one, if it may be ahead, or else a backward one.

    stages_each: of a rank; stage s is on rank s modulo the ranks. split: the backward pass is in two, of which that to
    the parameters waits until there is time. in_flight: given a rank and the ranks, how many forward passes it may be
    ahead of the backward ones; None: any number. remembered: how many ahead of those to the parameters.
    """

    stages_each: int = 1
    split: bool = False
    in_flight: Callable[[int, int], int] | None = None
    remembered: Callable[[int], int] | None = None


def _interleaved(rank: int, ranks: int) -> int:
    return 2 * (ranks - rank - 1) + ranks + 1


SCHEDULES: Mapping[str, StageSchedule] = {
    # Huang et al., "GPipe", NeurIPS 2019: all forward, then all backward; holds the activations of all micro-batches
    "gpipe": StageSchedule(),
    # Narayanan et al., "PipeDream", SOSP 2019: one forward, one backward; holds those of as many as stages follow
    "1f1b": StageSchedule(in_flight=lambda rank, ranks: ranks - rank),
    # Narayanan et al., "Efficient large-scale language model training", SC 2021: two stages a rank, half the bubble
    "interleaved": StageSchedule(stages_each=2, in_flight=_interleaved),
    # Qi, Wan, Huang & Lin, "Zero bubble pipeline parallelism", ICLR 2024 (its ZB-H1)
    "zero_bubble": StageSchedule(
        split=True, in_flight=lambda rank, ranks: ranks - rank, remembered=lambda ranks: ranks
    ),
}


@dataclass(frozen=True)
class Timetable:
    """By rank its actions in order. ticks: how long all takes, by `TICKS` and without time on links."""

    actions: Sequence[Sequence[StagePass]]
    ticks: int

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they have nothing to compute."""
        busy = sum(TICKS[action.work] for actions in self.actions for action in actions)
        return 1 - busy / (self.ticks * len(self.actions))

    @property
    def alive(self) -> float:
        """The largest share of a rank's forward passes whose activations it holds at once."""
        return max(_most_alive(actions) for actions in self.actions)


def _most_alive(actions: Sequence[StagePass]) -> float:
    last: Work = "weights" if any(action.work == "weights" for action in actions) else "backward"
    steps = [(action.work == "forward") - (action.work == last) for action in actions]
    return max(accumulate(steps)) / sum(step > 0 for step in steps)


def timetable(schedule: StageSchedule, ranks: int, micro_batches: int) -> Timetable:
    """The passes of so many ranks with so many micro-batches, each at least one."""
    done: dict[StagePass, int] = {}
    all_ranks = [_Rank(schedule, rank, ranks, micro_batches) for rank in range(ranks)]
    for tick in count():
        if all(rank.finished for rank in all_ranks):
            break
        for rank in all_ranks:
            rank.act(tick, done)
        assert any(rank.free_at > tick for rank in all_ranks), "the schedule's rules let nobody do anything"
    return Timetable([rank.actions for rank in all_ranks], max(rank.free_at for rank in all_ranks))


@dataclass
class _Rank:
    schedule: StageSchedule
    rank: int
    ranks: int
    micro_batches: int
    actions: list[StagePass] = field(default_factory=list)
    free_at: int = 0

    def __post_init__(self) -> None:
        own = range(self.schedule.stages_each)
        places = [(stage, number) for stage in own for number in range(self.micro_batches)]

        def queue(work: Work, last_first: bool) -> list[StagePass]:
            # groups of as many micro-batches as there are ranks go through all stages of a rank, one after another
            order = sorted(places, key=lambda one: (one[1] // self.ranks, -one[0] if last_first else one[0], one[1]))
            return [StagePass(work, stage * self.ranks + self.rank, number) for stage, number in order]

        self._forward = queue("forward", last_first=False)
        self._backward = queue("inputs" if self.schedule.split else "backward", last_first=True)
        self._weights = queue("weights", last_first=True) if self.schedule.split else []
        self._all = len(self._forward), len(self._backward), len(self._weights)

    @property
    def finished(self) -> bool:
        return not (self._forward or self._backward or self._weights)

    def act(self, tick: int, done: dict[StagePass, int]) -> None:
        """Begin what can be begun now, if anything can; done: when each action's result is there."""
        if tick < self.free_at:
            return
        for queue in (self._forward, self._backward, self._weights):
            if queue and self._may(queue[0]) and all(done.get(one, tick + 1) <= tick for one in self._needs(queue[0])):
                action = queue.pop(0)
                self.actions.append(action)
                self.free_at = done[action] = tick + TICKS[action.work]
                return

    def _may(self, action: StagePass) -> bool:
        if action.work != "forward":
            return True
        forward, backward, weights = (
            all_of - len(left)
            for all_of, left in zip(self._all, (self._forward, self._backward, self._weights), strict=True)
        )
        few = self.schedule.in_flight is None or forward - backward < self.schedule.in_flight(self.rank, self.ranks)
        held = self.schedule.remembered is None or forward - weights < self.schedule.remembered(self.ranks)
        return few and held

    def _needs(self, action: StagePass) -> list[StagePass]:
        """The passes that must have been done before."""
        stage, number = action.stage, action.micro_batch
        if action.work == "forward":
            return [StagePass("forward", stage - 1, number)] if stage else []
        if action.work == "weights":
            return [StagePass("inputs", stage, number)]
        behind = StagePass(action.work, stage + 1, number)
        last = stage == self.ranks * self.schedule.stages_each - 1
        return [StagePass("forward", stage, number), *([] if last else [behind])]
