"""A power of a line: (shift + scale * x) ** power, value by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PowerLayer(LayerKind):
    """The shape of what it is given stays."""

    power: float = 1.0  # exponent
    scale: float = 1.0  # factor of each value
    shift: float = 0.0  # what is added before the power

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.values import Power

        return Power(self.power, self.scale, self.shift)


LAYER = PowerLayer
