"""1 where a value is above a bound, 0 elsewhere; no gradient flows through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ThresholdLayer(LayerKind):
    """The shape of what it is given stays."""

    above: float = 0.0  # the bound

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.values import Above

        return Above(self.above)


LAYER = ThresholdLayer
