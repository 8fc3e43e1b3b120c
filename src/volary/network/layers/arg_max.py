"""The places of the largest values, or the values: of everything in a sample, or along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ArgMaxLayer(LayerKind):
    """The largest first; places are counted from 0, as floating-point numbers. No gradient flows through places.

    Without an axis a sample becomes (1, top, 1, ...) places, or with `values` (2, top, 1, ...): places, then values.
    Along an axis there are `top` of them in place of it: places, or with `values` the values. As Caffe has it.
    """

    top: int = 1  # how many
    axis: int | None = None  # along which; null: of all values of a sample
    values: bool = False  # the values, too

    def check(self) -> None:
        if self.top < 1:
            raise SettingError(f"top is {self.top}; accepted: a whole number from 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        shape, of = given[0], prod(given[0])
        if self.axis is not None:
            of = shape[axis_of(self.axis, shape)]
        if self.top > of:
            raise SettingError(f"top is {self.top}; accepted: up to {of}, which are there")
        if self.axis is None:
            return ((2 if self.values else 1, self.top, *(1 for _ in shape[2:])),)
        place = axis_of(self.axis, shape)
        return ((*shape[:place], self.top, *shape[place + 1 :]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.largest import ArgMax

        axis = None if self.axis is None else axis_of(self.axis, given[0]) + 1
        return ArgMax(self.top, axis, self.shapes(given)[0], values=self.values)


LAYER = ArgMaxLayer
