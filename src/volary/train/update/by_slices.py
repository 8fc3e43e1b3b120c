"""What an update must be for sums to be applied as they arrive, slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.train.update.rule import SlicePart


class UpdateBySlices(Protocol):
    """The update of each step, in slices that `divide` makes."""

    @property
    def why_whole(self) -> str:
        """Empty where parameters can be updated slice by slice, else why all gradients are waited for."""
        ...

    def divide(self, slices: Sequence[Sequence[SlicePart]]) -> None:
        """From now on `apply_slice` updates these."""
        ...

    def prepare(self, step: int) -> None:
        """The step after `step` finished ones begins: all updates before are done."""
        ...

    def apply_slice(self, number: int, sums: Sequence[Tensor | None], scale: float = 1.0) -> None:
        """Update a slice. sums: of each part's gradients, (n,); None: no rank used the parameter. scale: of sums."""
        ...
