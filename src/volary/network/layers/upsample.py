"""Enlarges by a whole factor, without parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape
from volary.network.operations.windows import refuse_below, spatial

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class UpsampleLayer(LayerKind):
    """(channels, ...) to the same channels and larger sides."""

    factor: int = 2  # of each side
    kind: Literal["nearest", "bilinear"] = "nearest"  # where the values between come from

    def check(self) -> None:
        refuse_below("factor", self.factor, 1)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        sides = spatial(given[0])
        if self.kind == "bilinear" and len(sides) != 2:
            raise SettingError("takes images (channels, height, width) where kind is 'bilinear'")
        return ((given[0][0], *(side * self.factor for side in sides)),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Upsample(scale_factor=self.factor, mode=self.kind)


LAYER = UpsampleLayer
