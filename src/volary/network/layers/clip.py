"""Values between two bounds: what is outside becomes the nearer bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ClipLayer(LayerKind):
    """The shape of what it is given stays."""

    low: float = 0.0  # the lower bound
    high: float = 1.0  # the upper bound

    def check(self) -> None:
        if self.low > self.high:
            raise SettingError(f"low is {self.low:g}, above high, {self.high:g}")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.values import Clamp

        return Clamp(self.low, self.high)


LAYER = ClipLayer
