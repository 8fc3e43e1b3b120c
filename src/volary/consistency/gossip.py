"""Gossip (D-PSGD: Lian et al., NIPS 2017): now and then a worker takes the mean with its neighbours alone.

Neighbours are those of a ring, or of the one-peer exponential graph (Assran et al., ICML 2019; Ying et al., NeurIPS
2021): with a power of two of workers, p, all have the mean of all after log2 p times in which nobody learnt. Or they
are drawn anew each time: a ring of all workers in a random order, or pairs (NoLoCo: Kolehmainen et al. 2025,
arXiv:2506.10911).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.consistency._base import Action, Consistency, Push
from volary.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Gossip(Consistency):
    """Each worker updates its own copy, which then becomes the mean of its own and its neighbours' copies."""

    graph: Literal["exponential", "ring", "random", "pairs"] = "exponential"  # who is whose neighbour
    period: int = 1  # steps between two means

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SettingError(f"period is {self.period}; accepted: a whole number of steps, 1 or more")

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """An update of its own; after the last step of a period its parameters leave."""
        return Action(updates=True, push=Push.NOTHING if number + 1 < self.period else Push.PARAMETERS)

    def partners(self, step: int, worker: int, workers: int) -> Sequence[int]:
        """The neighbours; of graphs that change, those of the period that begins with `step`, alike on all workers."""
        turn = step // self.period
        if self.graph == "ring":
            return [other % workers for other in (worker - 1, worker + 1)]
        if self.graph == "exponential":
            return [(worker - 2 ** (turn % max(1, (workers - 1).bit_length()))) % workers]
        order = random.Random(turn).sample(range(workers), workers)  # all draw the same
        place = order.index(worker)
        if self.graph == "random":
            return [order[place - 1]]
        return [order[place ^ 1]] if place ^ 1 < workers else []


CONSISTENCY = Gossip
