"""Who trains together, in a run whose workers keep step, and of which some are lost, leave or join."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace


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

    def led_by(self, first: int) -> GroupMembers:
        """The same, of which this rank is the first."""
        return replace(self, ranks=(first, *(rank for rank in self.ranks if rank != first)))

    def changed(self, leaving: Collection[int], joining: Sequence[int]) -> GroupMembers:
        """The members after one more change, for which all of these have paused."""
        return GroupMembers((*(rank for rank in self.ranks if rank not in leaving), *joining), self.number + 1)
