"""LeNet as Caffe has it (LeCun et al. 1998; BVLC/caffe examples/mnist/lenet.prototxt): with ReLU, and wider."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.network.images import image_shape
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LeNet(Network):
    """431,080 parameters on 1 x 28 x 28 with 10 classes."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images from 16 x 16 pixels to (batch, classes)."""
        from torch import nn

        from volary.network.blocks.fill import caffe_xavier

        channels, height, width = image_shape("lenet", input_shape, smallest=16)
        pixels = (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        network = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 20, 5),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(20, 50, 5),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                ip1=nn.Linear(50 * pixels, 500),
                relu1=nn.ReLU(inplace=True),
                ip2=nn.Linear(500, classes),
            )
        )
        caffe_xavier(network)
        return network


NETWORK = LeNet
