"""GoogLeNet (Szegedy et al. 2015, arXiv:1409.4842; BVLC/caffe models/bvlc_googlenet): 5 x 5 ways and LRN."""

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
class GoogLeNet(Network):
    """6,998,552 parameters on 3 x 224 x 224 with 1000 classes; 13,378,280 with the auxiliary heads."""

    auxiliary: bool = False  # two more classifiers half way, while training; they need images from 79 x 79
    dropout: float = 0.4  # share of the last layer's inputs that are dropped

    def check(self) -> None:
        share("dropout", self.dropout)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 32 x 32 pixels to (batch, classes); with `auxiliary` while training, a tuple of three."""
        from torch import nn

        from volary.network.blocks.fill import caffe_xavier
        from volary.network.blocks.tapped import Tapped

        channels, height, width = image_shape("googlenet", input_shape, smallest=79 if self.auxiliary else 32)
        stages = _stages(channels)
        stages |= OrderedDict(
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            drop=nn.Dropout(self.dropout),
            fc=nn.Linear(1024, classes),
        )
        network: nn.Module = nn.Sequential(stages)
        if self.auxiliary:
            heads = {name: _head(width_, height, width, classes) for name, width_ in {"4a": 512, "4d": 528}.items()}
            network = Tapped(stages, heads)
        caffe_xavier(network, bias=0.2)
        return network


def _stages(channels: int) -> OrderedDict[str, nn.Module]:
    from torch import nn

    from volary.network.blocks.convolution import conv_relu
    from volary.network.blocks.inception import inception

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, stride=2, ceil_mode=True)

    def norm() -> nn.Module:
        return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)

    return OrderedDict(
        [
            ("conv1", nn.Sequential(conv_relu(channels, 64, 7, stride=2, padding=3), pool(), norm())),
            ("conv2", nn.Sequential(conv_relu(64, 64, 1), conv_relu(64, 192, 3, padding=1), norm(), pool())),
            ("3a", inception(192, 64, (96, 128), (16, 32), 32)),
            ("3b", inception(256, 128, (128, 192), (32, 96), 64)),
            ("pool3", pool()),
            ("4a", inception(480, 192, (96, 208), (16, 48), 64)),
            ("4b", inception(512, 160, (112, 224), (24, 64), 64)),
            ("4c", inception(512, 128, (128, 256), (24, 64), 64)),
            ("4d", inception(512, 112, (144, 288), (32, 64), 64)),
            ("4e", inception(528, 256, (160, 320), (32, 128), 128)),
            ("pool4", pool()),
            ("5a", inception(832, 256, (160, 320), (32, 128), 128)),
            ("5b", inception(832, 384, (192, 384), (48, 128), 128)),
        ]
    )


def _head(channels: int, height: int, width: int, classes: int) -> nn.Module:
    """The paper's auxiliary classifier; height and width: the network's input."""
    from torch import nn

    from volary.network.blocks.convolution import conv_relu

    return nn.Sequential(
        nn.AvgPool2d(5, stride=3),
        conv_relu(channels, 128, 1),
        nn.Flatten(),
        nn.Linear(128 * _head_side(height) * _head_side(width), 1024),
        nn.ReLU(inplace=True),
        nn.Dropout(0.7),
        nn.Linear(1024, classes),
    )


def _head_side(side: int) -> int:
    """Return the side of an input of `side` pixels after conv1, three poolings and the head's own."""
    from volary.network.blocks.sizes import after

    side = after(side, 7, 2, padding=3)
    for _ in range(3):
        side = after(side, 3, 2, ceil=True)
    return after(side, 5, 3)


NETWORK = GoogLeNet
