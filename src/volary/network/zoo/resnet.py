"""ResNets (He et al. 2016, arXiv:1512.03385)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.network.checks import one_of
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
BOTTLENECK_FROM = 50


@dataclass(frozen=True, kw_only=True)
class ResNet(Network):
    """25,557,032 parameters with 50 layers, on 3 x 224 x 224 with 1000 classes."""

    depth: Literal[18, 34, 50, 101, 152] = 50  # layers with weights
    stem: Literal["auto", "imagenet", "cifar"] = (
        "auto"  # first layers; cifar: 3 x 3, no pooling; auto: so up to 64 x 64
    )

    def check(self) -> None:
        one_of("depth", self.depth, tuple(BLOCKS))
        one_of("stem", self.stem, ("auto", "imagenet", "cifar"))

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 32 x 32 pixels (cifar stem: 8 x 8) to (batch, classes)."""
        from volary.network.blocks.residual import basic, bottleneck
        from volary.network.blocks.resnet import resnet

        block = bottleneck if self.depth >= BOTTLENECK_FROM else basic
        return resnet(block, BLOCKS[self.depth], self.stem, input_shape, classes)


NETWORK = ResNet
