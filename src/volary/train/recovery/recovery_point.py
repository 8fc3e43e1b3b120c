"""Where a sharded run goes on once workers are gone: at the newest step of which all shares are still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volary.errors import WorkerLost

POINTS = 2  # that a worker keeps: the newest, and the one before it, until all copies of the newest are there


@dataclass(frozen=True, order=True)
class RecoveryPoint:
    """The state after `step` updates, in the shares of the group with this `number`, the newest of which counts."""

    step: int
    number: int


@dataclass(frozen=True)
class OfferedShares:
    """The shares that a worker has of a point. members: the ranks whose shares together are all of it."""

    point: RecoveryPoint
    members: Sequence[int]
    shares: Sequence[int]

    def plain(self) -> list[Any]:
        """The same in plain values."""
        return [self.point.step, self.point.number, list(self.members), list(self.shares)]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> OfferedShares:
        """The shares of which `plain` made these plain values."""
        step, number, members, shares = plain
        return cls(RecoveryPoint(step, number), members, shares)


def common_point(offers: Mapping[int, Sequence[OfferedShares]]) -> RecoveryPoint | None:
    """Return the newest point of which all shares are there; None if nobody has finished a step.

    offers: of each worker that is left, by its rank. Each keeps two points, and makes no update before all have the
    copies of the newer one: so one of the two is whole, unless a worker is gone together with whoever had its copy.
    Raises WorkerLost then, with the ranks.
    """
    members, shares = dict[RecoveryPoint, Sequence[int]](), dict[RecoveryPoint, set[int]]()
    for one in (one for own in offers.values() for one in own):
        members[one.point] = one.members
        shares.setdefault(one.point, set()).update(one.shares)
    whole = [point for point, ranks in members.items() if shares[point] >= set(ranks)]
    if whole:
        return max(whole)
    if max(map(len, offers.values())) < POINTS:
        return None
    oldest = min(members)  # which was whole before the newer one began
    gone = [rank for rank in sorted(members[oldest]) if rank not in offers]
    kept = [rank for rank in gone if rank not in shares[oldest]]
    raise WorkerLost(
        f"{_ranks(gone)} are lost together, and nobody else has the share of the optimiser's state and of parameters "
        f"that {_ranks(kept)} kept"
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
