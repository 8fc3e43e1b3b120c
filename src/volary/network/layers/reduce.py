"""The mean, a sum or the maximum along axes, which are gone afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ReduceLayer(LayerKind):
    """All axes from `axis` on by default; what is left must not be empty of axes but may be ()."""

    operation: Literal["mean", "sum", "maximum", "sum_of_magnitudes", "sum_of_squares"] = "mean"  # of the values
    factor: float = 1.0  # what the result is multiplied by
    axis: int = 1  # the first of the axes
    end: int = -1  # the last of them

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        first, last = axis_of(self.axis, given[0]), axis_of(self.end, given[0])
        if last < first:
            raise SettingError(f"end is {self.end}, before axis, {self.axis}")
        return ((*given[0][:first], *given[0][last + 1 :]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.shaping import ReduceAxes

        first, last = axis_of(self.axis, given[0]), axis_of(self.end, given[0])
        return ReduceAxes(self.operation, tuple(range(first + 1, last + 2)), self.factor)


LAYER = ReduceLayer
