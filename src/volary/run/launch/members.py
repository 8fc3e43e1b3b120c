"""Who trains together, in a run that goes on without a worker that is lost although its workers keep step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupMembers:
    """The ranks that train together, in the order of their places. number: how often that has changed so far."""

    ranks: tuple[int, ...]
    number: int = 0

    def without(self, gone: Collection[int]) -> GroupMembers:
        """The members that are left after one more change."""
        return GroupMembers(tuple(rank for rank in self.ranks if rank not in gone), self.number + 1)
