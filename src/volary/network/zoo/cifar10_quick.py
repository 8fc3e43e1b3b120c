"""CIFAR-10 Quick (BVLC/caffe examples/cifar10/cifar10_quick.prototxt, after Krizhevsky's cuda-convnet)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.images import image_shape
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Cifar10Quick(Network):
    """145,578 parameters on 3 x 32 x 32 with 10 classes. Weights start as the prototxt says (conv1 with std 0.0001)."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 8 x 8 pixels to (batch, classes)."""
        from torch import nn

        from volary.network.blocks.fill import gaussian
        from volary.network.blocks.sizes import after

        channels, height, width = image_shape("cifar10_quick", input_shape, smallest=8)
        for _ in range(3):
            height, width = after(height, 3, 2, ceil=True), after(width, 3, 2, ceil=True)
        network = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 32, 5, padding=2),
                pool1=nn.MaxPool2d(3, stride=2, ceil_mode=True),
                relu1=nn.ReLU(inplace=True),
                conv2=nn.Conv2d(32, 32, 5, padding=2),
                relu2=nn.ReLU(inplace=True),
                pool2=nn.AvgPool2d(3, stride=2, ceil_mode=True),
                conv3=nn.Conv2d(32, 64, 5, padding=2),
                relu3=nn.ReLU(inplace=True),
                pool3=nn.AvgPool2d(3, stride=2, ceil_mode=True),
                flatten=nn.Flatten(),
                ip1=nn.Linear(64 * height * width, 64),
                ip2=nn.Linear(64, classes),
            )
        )
        for layer, std in {"conv1": 0.0001, "conv2": 0.01, "conv3": 0.01, "ip1": 0.1, "ip2": 0.1}.items():
            gaussian(network.get_submodule(layer), std)
        return network


NETWORK = Cifar10Quick
