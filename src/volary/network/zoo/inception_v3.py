"""Inception-v3 (Szegedy et al. 2016, arXiv:1512.00567), with the sizes of TensorFlow's and torchvision's."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.checks import share
from volary.network.images import image_shape
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class InceptionV3(Network):
    """23,834,568 parameters on 3 x 299 x 299 with 1000 classes; 27,161,264 with the auxiliary head."""

    auxiliary: bool = False  # one more classifier at 17 x 17, while training; it needs images from 299 x 299
    dropout: float = 0.5  # share of the last layer's inputs that are dropped

    def check(self) -> None:
        share("dropout", self.dropout)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 75 x 75 pixels to (batch, classes); with `auxiliary` while training, a tuple of two."""
        from torch import nn

        from volary.network.blocks.fill import truncated_normal
        from volary.network.blocks.tapped import Tapped

        channels, _, _ = image_shape("inception_v3", input_shape, smallest=299 if self.auxiliary else 75)
        stages = _stages(channels)
        stages |= OrderedDict(
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            drop=nn.Dropout(self.dropout),
            fc=nn.Linear(2048, classes),
        )
        network = Tapped(stages, {"6e": _head(classes)}) if self.auxiliary else nn.Sequential(stages)
        truncated_normal(network, 0.1)
        return network


def _stages(channels: int) -> OrderedDict[str, nn.Module]:
    from torch import nn

    from volary.network.blocks.inception_v3 import block_8, block_17, block_35, conv, reduce_to_8, reduce_to_17

    stem = [
        conv(channels, 32, 3, stride=2),
        conv(32, 32, 3),
        conv(32, 64, 3, padding=1),
        nn.MaxPool2d(3, stride=2),
        conv(64, 80, 1),
        conv(80, 192, 3),
        nn.MaxPool2d(3, stride=2),
    ]
    return OrderedDict(
        [
            ("stem", nn.Sequential(*stem)),
            ("5b", block_35(192, pool=32)),
            ("5c", block_35(256, pool=64)),
            ("5d", block_35(288, pool=64)),
            ("6a", reduce_to_17(288)),
            ("6b", block_17(768, width=128)),
            ("6c", block_17(768, width=160)),
            ("6d", block_17(768, width=160)),
            ("6e", block_17(768, width=192)),
            ("7a", reduce_to_8(768)),
            ("7b", block_8(1280)),
            ("7c", block_8(2048)),
        ]
    )


def _head(classes: int) -> nn.Module:
    from torch import nn

    from volary.network.blocks.inception_v3 import conv

    return nn.Sequential(
        nn.AvgPool2d(5, stride=3),
        conv(768, 128, 1),
        conv(128, 768, 5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(768, classes),
    )


NETWORK = InceptionV3
