"""Several edges to one, and one to several."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn


class Concat(nn.Module):
    """Joins tensors along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *edges: Tensor) -> Tensor:
        """Tensors (batch, ...) that are equal but for the axis, to (batch, ...)."""
        return torch.cat(edges, self.axis)


class Cut(nn.Module):
    """Cuts a tensor along an axis into parts of given sizes."""

    def __init__(self, sizes: list[int], axis: int) -> None:
        super().__init__()
        self.sizes, self.axis = sizes, axis

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """(batch, ...) to a tuple of (batch, ...), or to itself if there is one part."""
        return torch.split(x, self.sizes, self.axis) if len(self.sizes) > 1 else x


class Sum(nn.Module):
    """Adds tensors, each perhaps with a factor of its own."""

    def __init__(self, coefficients: tuple[float, ...] | None = None) -> None:
        super().__init__()
        self.coefficients = coefficients

    def forward(self, *edges: Tensor) -> Tensor:
        """Tensors of one shape (batch, ...) to that shape."""
        if self.coefficients is not None:
            edges = tuple(factor * edge for factor, edge in zip(self.coefficients, edges, strict=True))
        return reduce(torch.add, edges)


class Product(nn.Module):
    """Multiplies tensors value by value."""

    def forward(self, *edges: Tensor) -> Tensor:
        """Tensors of one shape (batch, ...) to that shape."""
        return reduce(torch.mul, edges)


class Maximum(nn.Module):
    """Takes the largest of tensors value by value."""

    def forward(self, *edges: Tensor) -> Tensor:
        """Tensors of one shape (batch, ...) to that shape."""
        return reduce(torch.maximum, edges)
