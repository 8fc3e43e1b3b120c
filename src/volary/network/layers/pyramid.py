"""Pooling into 1, 2 x 2, 4 x 4, ... windows, side by side: images of any size become as many values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from volary.errors import SettingError
from volary.network.layers._base import LayerKind, Shape

if TYPE_CHECKING:
    from torch import nn

Grid = tuple[tuple[int, int], tuple[int, int]]  # sizes of a level's windows, and the padding on each side


@dataclass(frozen=True, kw_only=True)
class PyramidLayer(LayerKind):
    """(channels, height, width) to (channels * (1 + 4 + 16 + ...),). Windows: those of Caffe's SPP (He et al. 2014)."""

    levels: int  # the last one has 2 ** (levels - 1) windows along each side
    kind: Literal["max", "average"] = "max"  # what is taken of each window; an average counts zeros beyond the edges

    def check(self) -> None:
        if self.levels < 1:
            raise SettingError(f"levels is {self.levels}; accepted: a whole number from 1")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        grids = self._grids(given[0])
        return ((given[0][0] * sum(4**level for level in range(len(grids))),),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from volary.network.operations.pyramid import PoolPyramid

        return PoolPyramid(self._grids(given[0]), self.kind)

    def _grids(self, shape: Shape) -> list[Grid]:
        """The grid of each level. Raises SettingError if a window would have no value, as in Caffe."""
        if len(shape) != 3:
            raise SettingError(f"takes (channels, height, width); it was given {shape}")
        found = []
        for level in range(self.levels):
            (height, above), (width, left) = (_windows(side, 2**level) for side in shape[1:])
            if above >= height or left >= width:
                raise SettingError(f"levels is {self.levels}; accepted: up to {level} for {shape[1]}x{shape[2]} values")
            found.append(((height, width), (above, left)))
        return found


def _windows(side: int, count: int) -> tuple[int, int]:
    """The size of so many windows that cover a side, and the padding at each end."""
    size = -(-side // count)
    return size, (size * count - side + 1) // 2


LAYER = PyramidLayer
