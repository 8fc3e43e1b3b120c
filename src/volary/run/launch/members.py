"""Who trains together, in a run that goes on without a worker that is lost although its workers keep step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupMembers:
    """The ranks that train together, in the order of their places. number: how often that has changed so far."""

    ranks: tuple[int, ...]
    number: int = 0

    def without(self, gone: Collection[int], spares: Sequence[int] = ()) -> GroupMembers:
        """The members after one more change: those that are left, and spares in the places of the others.

        None of them if nobody is left: they have no state to train on from.
        """
        left = tuple(rank for rank in self.ranks if rank not in gone)
        taken = spares[: len(self.ranks) - len(left)] if left else ()
        return GroupMembers((*left, *taken), self.number + 1)
