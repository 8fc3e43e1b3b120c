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

    def divide(self, slices: Sequence[Mapping[Range, Tensor]]) -> UpdateRule:
        """The rule of these slices, numbered in this order, instead of that of any before."""
        ...

    def prepare(self, step: int) -> None:
        """The step after `step` finished ones begins: all updates before are done."""
        ...
