"""The residual block of deep ResNets: 1 x 1 to fewer channels, 3 x 3, 1 x 1 to four times as many."""

from __future__ import annotations

from torch import nn

from volary.network.blocks.conv_bn_relu import conv_bn_relu
from volary.network.blocks.residual import Residual


def bottleneck(channels: int, width: int, stride: int) -> tuple[Residual, int]:
    """The block, and how many channels it gives: four times `width`.

    The 3 x 3 convolution strides, not the first 1 x 1 ("v1.5", as in torchvision); parameters are equal.
    """
    out = 4 * width
    layers = nn.Sequential(
        conv_bn_relu(channels, width, 1),
        conv_bn_relu(width, width, 3, stride, padding=1),
        nn.Conv2d(width, out, 1, bias=False),
        nn.BatchNorm2d(out),
    )
    return Residual(layers, channels, out, stride), out
