"""Softmax: shares that are in sum 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SoftmaxLayer(LayerKind):
    """The shape stays. The loss `cross_entropy` takes scores without it."""

    axis: int = 1  # along which the sum is 1

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        axis_of(self.axis, given[0])
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Softmax(axis_of(self.axis, given[0]) + 1)


LAYER = SoftmaxLayer
