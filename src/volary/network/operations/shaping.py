"""The same values in another shape or order, fewer of them, or what becomes of them along axes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Reshape(nn.Module):
    """Gives each sample a shape; 0: as it was in this place, -1: what is left."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, ...)."""
        sizes = [x.shape[place + 1] if size == 0 else size for place, size in enumerate(self.shape)]
        return x.reshape(x.shape[0], *sizes)


class Permute(nn.Module):
    """Puts axes into another order, of which the batch is the first."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, ...)."""
        return x.permute(self.order)


class Crop(nn.Module):
    """Cuts the first tensor to the sizes of the second, from an axis on."""

    def __init__(self, axis: int, offsets: tuple[int, ...]) -> None:
        super().__init__()
        self.axis, self.offsets = axis, offsets

    def forward(self, x: Tensor, like: Tensor) -> Tensor:
        """Two tensors (batch, ...) with as many axes to (batch, ...)."""
        for axis, offset in enumerate(self.offsets, start=self.axis):
            x = x.narrow(axis, offset, like.shape[axis])
        return x


class Tile(nn.Module):
    """Copies one behind the other along an axis, which is counted with the batch as 0."""

    def __init__(self, copies: int, axis: int) -> None:
        super().__init__()
        self.copies, self.axis = copies, axis

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, ...), with a longer axis."""
        return torch.cat([x] * self.copies, self.axis)


class ReduceAxes(nn.Module):
    """The mean, a sum or the maximum along axes, times a factor."""

    def __init__(self, operation: str, axes: tuple[int, ...], factor: float) -> None:
        super().__init__()
        self.operation, self.axes, self.factor = operation, axes, factor

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, ...) without the axes."""
        found = self._reduced(x)
        return found if self.factor == 1 else self.factor * found

    def _reduced(self, x: Tensor) -> Tensor:
        if self.operation == "mean":
            return x.mean(self.axes)
        if self.operation == "maximum":
            return x.amax(self.axes)
        if self.operation == "sum":
            return x.sum(self.axes)
        return (x.abs() if self.operation == "sum_of_magnitudes" else x.square()).sum(self.axes)
