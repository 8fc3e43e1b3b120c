"""VGG networks (Simonyan & Zisserman 2015, arXiv:1409.1556), without batch normalization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.network.checks import one_of, share
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


@dataclass(frozen=True, kw_only=True)
class Vgg(Network):
    """138,357,544 parameters with 16 layers, on 3 x 224 x 224 with 1000 classes. Weights start as in He et al. 2015."""

    depth: Literal[11, 13, 16, 19] = 16  # layers with weights
    dropout: float = 0.5  # share of the fully connected layers' values that are dropped

    def check(self) -> None:
        one_of("depth", self.depth, tuple(CONVOLUTIONS))
        share("dropout", self.dropout)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 32 x 32 pixels to (batch, classes)."""
        from volary.network.blocks.vgg import vgg

        return vgg(CONVOLUTIONS[self.depth], self.dropout, input_shape, classes)


NETWORK = Vgg
