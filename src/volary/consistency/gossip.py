"""Gossip (D-PSGD: Lian et al., NIPS 2017): now and then a worker takes the mean with its neighbours alone.

Neighbours are those of a ring, or of the one-peer exponential graph (Assran et al., ICML 2019; Ying et al., NeurIPS
2021): with a power of two of workers, p, all have the mean of all after log2 p times in which nobody learnt. Or they
are drawn anew each time: a ring of all workers in a random order, or pairs. With momentum it is DiLoCo without a sum
over all workers (NoLoCo: Kolehmainen et al. 2025, arXiv:2506.10911).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf
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
    momentum: float = 0.0  # of what a mean changes (alpha)
    lr: float = 1.0  # factor of what workers have changed since the mean before (beta)
    gamma: float = 1.0  # part of its distance to the mean by which a worker comes back to its neighbours
    threads: int = 1  # of each worker, which update its copy without locks, see `hogwild`

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SettingError(f"period is {self.period}; accepted: a whole number of steps, 1 or more")
        if not 0 <= self.momentum < 1:
            raise SettingError(f"momentum is {self.momentum:g}; accepted: from 0 to below 1")
        if not 0 < self.lr < inf:
            raise SettingError(f"lr is {self.lr:g}; accepted: above 0")
        self._check_momentum()

    @property
    def plain(self) -> bool:
        """Whether copies become means, and no more."""
        return (self.momentum, self.lr, self.gamma) == (0, 1, 1)

    def _check_momentum(self) -> None:
        """Raise SettingError if copies would drift apart.

        The mean square of their distances falls in the recursion of `averaging.gossip_momentum`, with neighbours drawn
        from many workers, below 2 (1 - momentum^2); on a ring, whose mean is the same always and has no eigenvalue
        below -1/3, below 1.5 (1 + momentum).
        """
        if self.plain:
            return
        if self.graph == "exponential":
            raise SettingError(
                "momentum, lr or gamma is given, and with graph=exponential neighbours come in turn, by which copies "
                "may drift apart; accepted: graph=pairs, random or ring"
            )
        most = 1.5 * (1 + self.momentum) if self.graph == "ring" else 2 * (1 - self.momentum**2)
        if not 0 < self.gamma < most:
            raise SettingError(
                f"gamma is {self.gamma:g}, and with momentum={self.momentum:g} and graph={self.graph} copies would "
                f"drift apart; accepted: above 0, below {most:.3g}"
            )

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
