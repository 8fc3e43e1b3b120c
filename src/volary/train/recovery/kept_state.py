"""The state of a rank in memory, from which those that are left train on after another one is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True)
class KeptState:
    """As of `step` updates, in the tensors that the parameters and the optimiser had.

    alike: what all ranks have alike, by name, as in a checkpoint. own: what this rank alone has. own_ahead: what it has
    after one more contribution, whose update others may have done: to that this rank has contributed all that it had.
    due: what was agreed on the newest contribution, if its update is done and not all that follows it; else None.
    begun: the feed's step before that. saved: the step of the newest checkpoint that counts, 0 without one. asked: how
    many requests to the run were done before that contribution; what was to follow it is done after the next one.
    inherited: by rank, what others had alone that have handed it over to this one: it counts once they are gone.
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

    @classmethod
    def nothing(cls) -> KeptState:
        """That of a rank which has not trained: all comes from others."""
        return cls(0, {}, {}, {}, None, 0, 0)

    @property
    def newness(self) -> tuple[int, bool]:
        """Greater for a state of which more is done."""
        return self.step, self.due is None

    def among(self, ranks: Collection[int]) -> KeptState:
        """The same for a group of these ranks: what is inherited is of those that are gone."""
        gone = {rank: state for rank, state in self.inherited.items() if rank not in ranks}
        return replace(self, inherited=gone)

    def own_at(self, step: int) -> dict[str, Any]:
        """The state that this rank alone has after `step` steps, of this state or of one contribution more."""
        return self.own if step == self.step else self.own_ahead
