"""The protocol of updates that can be applied as sums arrive, slice by slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.server.update_rule import UpdateRule
    from volary.sharding.ranges import Range


class UpdateBySlices(Protocol):
    """The update of each step, in slices that `divide` makes."""

    @property
    def why_whole(self) -> str:
        """Empty where parameters can be updated slice by slice, else why all gradients are waited for."""
        ...

    @property
    def why_undivided(self) -> str:
        """Empty where a worker can update its parts of parameters alone, with what all agree on; else why not."""
        ...

    def divide(self, slices: Sequence[Mapping[Range, Tensor]]) -> UpdateRule:
        """The rule of these slices, numbered in this order, instead of that of any before."""
        ...

    @property
    def most_norm(self) -> float | None:
        """The norm that all gradients together are scaled to at most, where parts are updated alone; None: any."""
        ...

    def prepare(self, step: int) -> None:
        """The step after `step` finished ones begins: all updates before are done."""
        ...


def by_number(slices: Sequence[Mapping[Range, Tensor]]) -> dict[int, Mapping[Range, Tensor]]:
    """The slices of which a worker updates something, by number."""
    return {number: one for number, one in enumerate(slices) if one}
