"""Who trains together, in a run whose workers keep step, and of which some are lost, leave or join."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

CHANGES_EACH = 1 << 20  # numbers of members that the driver of one attempt has


@dataclass(frozen=True)
class GroupMembers:
    """The ranks that train together, in the order of their places. number: greater with each change.

    A driver that takes the place of a lost one numbers its members from its attempt's on (`first_number`): whatever the
    lost one has named, or names if it was only stopped, is older.
    """

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


def first_number(attempt: int) -> int:
    """The number of the first members that the driver of this attempt names, if it takes the place of another one."""
    return attempt * CHANGES_EACH


class TrainingReport(msgspec.Struct, frozen=True):
    """A worker tells this to a driver that takes the place of a lost one: who trained, and what they were asked to do.

    ranks, number: the members as it last heard of them. requests: as of `Pulse`.
    """

    ranks: tuple[int, ...]
    number: int
    requests: tuple[Any, ...] = ()
