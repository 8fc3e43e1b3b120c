"""A convolution, then ReLU: with a bias, or with batch normalization between them."""

from __future__ import annotations

from torch import nn

Pair = int | tuple[int, int]


def conv_bn_relu(
    channels: int, out: int, kernel: Pair, stride: int = 1, padding: Pair = 0, *, eps: float = 1e-5
) -> nn.Sequential:
    """A convolution without bias, batch normalization, ReLU.

    kernel, padding: also (height, width). eps: batch normalization's.
    """
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(out, eps=eps),
        nn.ReLU(inplace=True),
    )


def conv_relu(channels: int, out: int, kernel: int, **settings: int) -> nn.Sequential:
    """A convolution with bias, ReLU. `settings` are Conv2d's: stride, padding, groups."""
    return nn.Sequential(nn.Conv2d(channels, out, kernel, **settings), nn.ReLU(inplace=True))  # type: ignore[arg-type]
