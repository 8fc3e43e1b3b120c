"""A convolution with bias, then ReLU."""

from __future__ import annotations

from torch import nn


def conv_relu(channels: int, out: int, kernel: int, **settings: int) -> nn.Sequential:
    """`settings` are Conv2d's: stride, padding, groups."""
    return nn.Sequential(nn.Conv2d(channels, out, kernel, **settings), nn.ReLU(inplace=True))  # type: ignore[arg-type]
