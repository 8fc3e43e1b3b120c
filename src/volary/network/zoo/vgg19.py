"""VGG-19 (Simonyan & Zisserman 2015, arXiv:1409.1556), without batch normalization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.checks import share
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Vgg19(Network):
    """143,667,240 parameters on 3 x 224 x 224 with 1000 classes. Weights start as in He et al. 2015."""

    dropout: float = 0.5  # share of the fully connected layers' values that are dropped

    def check(self) -> None:
        share("dropout", self.dropout)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 32 x 32 pixels to (batch, classes)."""
        from volary.network.blocks.vgg import vgg

        return vgg("vgg19", (2, 2, 4, 4, 4), self.dropout, input_shape, classes)


NETWORK = Vgg19
