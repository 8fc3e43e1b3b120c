"""The state of a rank in memory, from which those that are left train on after another one is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volary.run.launch.members import GroupMembers
from volary.train.recovery.recovery_point import OfferedShares, RecoveryPoint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor


@dataclass(frozen=True)
class KeptState:
    """As of `step` updates, in the tensors that the parameters and the optimiser had.

    alike: what all ranks have alike, by name, as in a checkpoint. own: what this rank alone has. own_ahead: what it has
    after one more contribution, whose update others may have done: to that this rank has contributed all that it had.
    due: what was agreed on the newest contribution, if its update is done and not all that follows it; else None.
    begun: the feed's step before that. saved: the step of the newest checkpoint that counts, 0 without one. asked: how
    many requests to the run were done before that contribution; what was to follow it is done after the next one.
    inherited: by rank, what others had alone that have handed it over to this one: it counts once they are gone.
    shares: by rank, where each of `members` has a share of the parameters and of the optimiser's state, those that are
    here, packed. former: the state one contribution earlier, which counts as long as not all have copies of this one.
    """

    step: int
    alike: Mapping[str, Any]
    own: dict[str, Any]
    own_ahead: dict[str, Any]
    due: dict[str, Any] | None
    begun: int
    saved: int
    asked: int = 0
    inherited: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    members: GroupMembers = field(default_factory=lambda: GroupMembers(()))
    shares: dict[int, Tensor] = field(default_factory=dict)
    former: KeptState | None = None

    @classmethod
    def nothing(cls) -> KeptState:
        """The state of a rank which has not trained: all comes from others."""
        return cls(0, {}, {}, {}, None, 0, 0)

    @property
    def newness(self) -> tuple[int, bool]:
        """Greater for a state of which more is done."""
        return self.step, self.due is None

    def among(self, ranks: Collection[int]) -> KeptState:
        """The same for a group of these ranks: what is inherited is of those that are gone."""
        gone = {rank: state for rank, state in self.inherited.items() if rank not in ranks}
        return replace(self, inherited=gone)

    @property
    def point(self) -> RecoveryPoint:
        """The point that its shares are of."""
        return RecoveryPoint(self.step, self.members.number)

    def offers(self) -> list[OfferedShares]:
        """The points of which it has shares."""
        own = [OfferedShares(self.point, self.members.ranks, sorted(self.shares))] if self.shares else []
        return own if self.former is None else [*own, *self.former.offers()]

    def at(self, point: RecoveryPoint) -> KeptState:
        """The state of this rank at a point; nothing, if it had no share of it."""
        if self.shares and self.point == point:
            return self
        return KeptState.nothing() if self.former is None else self.former.at(point)

    def own_at(self, step: int) -> dict[str, Any]:
        """The state that this rank alone has after `step` steps, of this state or of one contribution more."""
        return self.own if step == self.step else self.own_ahead
