"""AlexNet (Krizhevsky et al. 2012; BVLC/caffe models/bvlc_alexnet): groups of two and local response normalization."""

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
class AlexNet(Network):
    """60,965,224 parameters on 3 x 227 x 227 with 1000 classes."""

    dropout: float = 0.5  # share of the fully connected layers' values that are dropped

    def check(self) -> None:
        share("dropout", self.dropout)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 67 x 67 pixels to (batch, classes)."""
        from torch import nn

        from volary.network.blocks.fill import gaussian
        from volary.network.blocks.sizes import after

        channels, height, width = image_shape("alexnet", input_shape, smallest=67)
        height, width = after(height, 11, 4), after(width, 11, 4)
        for _ in range(3):
            height, width = after(height, 3, 2), after(width, 3, 2)
        network = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 96, 11, stride=4),
                relu1=nn.ReLU(inplace=True),
                norm1=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
                pool1=nn.MaxPool2d(3, stride=2),
                conv2=nn.Conv2d(96, 256, 5, padding=2, groups=2),
                relu2=nn.ReLU(inplace=True),
                norm2=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
                pool2=nn.MaxPool2d(3, stride=2),
                conv3=nn.Conv2d(256, 384, 3, padding=1),
                relu3=nn.ReLU(inplace=True),
                conv4=nn.Conv2d(384, 384, 3, padding=1, groups=2),
                relu4=nn.ReLU(inplace=True),
                conv5=nn.Conv2d(384, 256, 3, padding=1, groups=2),
                relu5=nn.ReLU(inplace=True),
                pool5=nn.MaxPool2d(3, stride=2),
                flatten=nn.Flatten(),
                fc6=nn.Linear(256 * height * width, 4096),
                relu6=nn.ReLU(inplace=True),
                drop6=nn.Dropout(self.dropout),
                fc7=nn.Linear(4096, 4096),
                relu7=nn.ReLU(inplace=True),
                drop7=nn.Dropout(self.dropout),
                fc8=nn.Linear(4096, classes),
            )
        )
        for layer in ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8"):
            std = 0.005 if layer in ("fc6", "fc7") else 0.01
            bias = 0.0 if layer in ("conv1", "conv3", "fc8") else 0.1
            gaussian(network.get_submodule(layer), std, bias)
        return network


NETWORK = AlexNet
