"""Local response normalization (Krizhevsky et al. 2012, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape
from volary.network.operations.windows import refuse_below, spatial

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LrnLayer(LayerKind):
    """(channels, ...) to the same shape: x / (k + alpha * mean of squares nearby) ** beta."""

    size: int = 5  # channels of the neighbourhood, or its side
    alpha: float = 1e-4  # factor of the mean of squares
    beta: float = 0.75  # exponent
    k: float = 1.0  # what is added to the mean
    region: Literal["across", "within"] = "across"  # neighbours: channels, or pixels of the same channel

    def check(self) -> None:
        refuse_below("size", self.size, 1)
        if self.region == "within" and self.size % 2 == 0:
            raise SettingError(f"size is {self.size}; accepted within channels: an odd number")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        sides = spatial(given[0])
        if self.region == "within" and len(sides) != 2:
            raise SettingError("takes images (channels, height, width) where region is 'within'")
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        from volary.network.operations.values import ResponseNormWithin

        if self.region == "within":
            return ResponseNormWithin(self.size, self.alpha, self.beta, self.k)
        return nn.LocalResponseNorm(self.size, self.alpha, self.beta, self.k)


LAYER = LrnLayer
