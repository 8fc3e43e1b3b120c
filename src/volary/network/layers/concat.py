"""Concatenation: several edges, one behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ConcatLayer(LayerKind):
    """Shapes that are equal but for `axis`, whose sizes add up."""

    most: ClassVar[int | None] = None

    axis: int = 1  # along which they are joined

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        place = axis_of(self.axis, given[0])
        rest = [(*shape[:place], *shape[place + 1 :]) for shape in given]
        if any(len(shape) != len(given[0]) for shape in given) or any(one != rest[0] for one in rest):
            raise SettingError(f"joins along axis {place + 1}; accepted: shapes that are equal but for that axis")
        return ((*given[0][:place], sum(shape[place] for shape in given), *given[0][place + 1 :]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.joining import Concat

        return Concat(axis_of(self.axis, given[0]) + 1)


LAYER = ConcatLayer
