"""A residual block: what the layers compute is added to what came in (He et al. 2016, arXiv:1512.03385)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


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
