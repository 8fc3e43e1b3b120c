"""Hogwild (Niu et al., NIPS 2011): threads of one worker update the same parameters, without a lock.

Each takes the next batch once it is free, and updates all threads' parameters by its gradients at once, whatever others
do meanwhile. Nobody has a batch of its own to finish, so none waits for a slow one, and each sample is learnt once an
epoch. Every period threads wait for each other; several workers then take the mean of their copies, as `local` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from volary.consistency._base import Action, Consistency, Push
from volary.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Hogwild(Consistency):
    """Threads that share one memory; `threads` of `local`, `elastic` and `gossip` are the same under these models."""

    threads: int = 2  # of each worker
    period: int = 64  # steps after which threads wait for each other, and workers take the mean of their copies

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SettingError(f"period is {self.period}; accepted: a whole number of steps, 1 or more")

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """An update by a thread; after the last step of a period, what all of them have changed leaves."""
        return Action(updates=True, push=Push.NOTHING if number + 1 < self.period else Push.DIFFERENCE)


CONSISTENCY = Hogwild
