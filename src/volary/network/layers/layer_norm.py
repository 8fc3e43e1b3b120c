"""Layer normalization (Ba et al. 2016, arXiv:1607.06450)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.layers._base import LayerKind, Shape, axis_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LayerNormLayer(LayerKind):
    """The shape stays; each position's values along the last axis get mean 0 and variance 1."""

    eps: float = 1e-5  # added to the variance
    affine: bool = True  # whether there is a factor that is learnt
    bias: bool = True  # whether there is a bias beside the factor

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        axis_of(-1, given[0])
        return (given[0],)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        return nn.LayerNorm(given[0][-1], self.eps, self.affine, self.bias)


LAYER = LayerNormLayer
