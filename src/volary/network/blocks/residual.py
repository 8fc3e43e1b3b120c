"""Residual blocks: what the layers compute is added to what came in (He et al. 2016, arXiv:1512.03385)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from volary.network.blocks.convolution import conv_bn_relu


class Residual(nn.Module):
    """relu(layers(x) + shortcut(x)); the shortcut is the identity, or a 1 x 1 convolution where the shape changes."""

    def __init__(self, layers: nn.Module, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.layers = layers
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False),
                nn.BatchNorm2d(out),
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to (batch, out, h / stride, w / stride)."""
        return relu(self.layers(x) + self.shortcut(x), inplace=True)


def basic(channels: int, width: int, stride: int) -> tuple[Residual, int]:
    """The block of shallow ResNets, two 3 x 3 convolutions; and how many channels it gives: `width`."""
    layers = nn.Sequential(
        conv_bn_relu(channels, width, 3, stride, padding=1),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )
    return Residual(layers, channels, width, stride), width


def bottleneck(channels: int, width: int, stride: int) -> tuple[Residual, int]:
    """The block of deep ResNets: 1 x 1 to fewer channels, 3 x 3, 1 x 1 to four times as many.

    Returns it, and how many channels it gives: four times `width`.
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
