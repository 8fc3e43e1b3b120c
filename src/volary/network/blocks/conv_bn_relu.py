"""A convolution without bias, batch normalization, then ReLU."""

from __future__ import annotations

from torch import nn

Pair = int | tuple[int, int]


def conv_bn_relu(
    channels: int, out: int, kernel: Pair, stride: int = 1, padding: Pair = 0, *, eps: float = 1e-5
) -> nn.Sequential:
    """The three as one; kernel and padding may be (height, width), eps is batch normalization's."""
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(out, eps=eps),
        nn.ReLU(inplace=True),
    )
