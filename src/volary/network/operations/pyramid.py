"""Pooling of an image into grids of windows, one finer than the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, pad

if TYPE_CHECKING:
    from collections.abc import Sequence


class PoolPyramid(nn.Module):
    """See `PyramidLayer`. grids: of each level the sizes of a window, and the padding on each side."""

    def __init__(self, grids: Sequence[tuple[tuple[int, int], tuple[int, int]]], kind: str) -> None:
        super().__init__()
        self.grids, self.largest = tuple(grids), kind == "max"

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, channels * windows of all levels)."""
        return torch.cat([self._pooled(x, *grid).flatten(1) for grid in self.grids], 1)

    def _pooled(self, x: Tensor, size: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        # torch's own padding ends at half a window
        (above, left), beyond = padding, float("-inf") if self.largest else 0.0
        padded = pad(x, (left, left, above, above), value=beyond)
        return max_pool2d(padded, size) if self.largest else avg_pool2d(padded, size)
