"""Several axes become one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class FlattenLayer(LayerKind):
    """As torch's flatten, within a sample."""

    axis: int = 1  # the first of them
    end: int = -1  # the last of them

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        first, last = axis_of(self.axis, given[0]), axis_of(self.end, given[0])
        if last < first:
            raise SettingError(f"end is {self.end}, before axis, {self.axis}")
        return ((*given[0][:first], prod(given[0][first : last + 1]), *given[0][last + 1 :]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Flatten(axis_of(self.axis, given[0]) + 1, axis_of(self.end, given[0]) + 1)


LAYER = FlattenLayer
