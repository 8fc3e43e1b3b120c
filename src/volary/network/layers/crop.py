"""Cuts one edge to the size of another (Long et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of
from volary.network.operations.windows import Sizes, each, refuse_below

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class CropLayer(LayerKind):
    """The first edge, with the second one's sizes from `axis` on."""

    fewest: ClassVar[int] = 2
    most: ClassVar[int | None] = 2

    axis: int = 2  # the first that is cut
    offset: Sizes = 0  # values that are left out before; a number, or one for each axis that is cut

    def check(self) -> None:
        refuse_below("offset", self.offset, 0)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        place, axes = axis_of(self.axis, given[0]), len(given[0])
        if len(given[1]) != axes:
            raise SettingError("takes two edges with as many axes")
        after = zip(given[0][place:], given[1][place:], each("offset", self.offset, axes - place), strict=True)
        if any(offset + wanted > side for side, wanted, offset in after):
            raise SettingError(f"offset is {self.offset}, beyond which the first edge has too few values")
        return ((*given[0][:place], *given[1][place:]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.shaping import Crop

        place = axis_of(self.axis, given[0])
        return Crop(place + 1, each("offset", self.offset, len(given[0]) - place))


LAYER = CropLayer
