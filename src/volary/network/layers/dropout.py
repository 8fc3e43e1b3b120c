"""Dropout (Srivastava et al. 2014): while training, some values are 0 and the others larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.checks import share
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DropoutLayer(LayerKind):
    """The shape stays; in evaluation nothing happens."""

    rate: float = 0.5  # share of the values that are dropped

    def check(self) -> None:
        share("rate", self.rate)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.Dropout(self.rate)


LAYER = DropoutLayer
