"""ReLU with a slope that is learnt (He et al. 2015, arXiv:1502.01852)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PreluLayer(LayerKind):
    """The shape of what it is given stays."""

    shared: bool = False  # one slope for all channels
    slope: float = 0.25  # first value of each slope

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.PReLU(1 if self.shared else given[0][0], init=self.slope)


LAYER = PreluLayer
