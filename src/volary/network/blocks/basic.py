"""The residual block of shallow ResNets: two 3 x 3 convolutions."""

from __future__ import annotations

from torch import nn

from volary.network.blocks.conv_bn_relu import conv_bn_relu
from volary.network.blocks.residual import Residual


def basic(channels: int, width: int, stride: int) -> tuple[Residual, int]:
    """The block, and how many channels it gives: `width`."""
    layers = nn.Sequential(
        conv_bn_relu(channels, width, 3, stride, padding=1),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )
    return Residual(layers, channels, width, stride), width
