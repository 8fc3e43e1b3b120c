"""Several copies of a blob, one behind the other along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class TileLayer(LayerKind):
    """The axis is longer by the number of copies."""

    copies: int = 2  # how many there are
    axis: int = 1  # along which they are

    def check(self) -> None:
        if self.copies < 1:
            raise SettingError(f"copies is {self.copies}; accepted: a whole number from 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        place = axis_of(self.axis, given[0])
        return ((*given[0][:place], self.copies * given[0][place], *given[0][place + 1 :]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.shaping import Tile

        return Tile(self.copies, axis_of(self.axis, given[0]) + 1)


LAYER = TileLayer
