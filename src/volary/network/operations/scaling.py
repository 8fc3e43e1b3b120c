"""A factor or a bias, or both, for each channel; and values brought to a mean and a variance."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScaleByParameters(nn.Module):
    """x * weight + bias. shape: of the parameters; after: axes of x behind theirs."""

    def __init__(self, shape: tuple[int, ...], after: int, *, bias: bool) -> None:
        super().__init__()
        self.after = after
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to the same shape."""
        x = x * _spread(self.weight, self.after)
        return x if self.bias is None else x + _spread(self.bias, self.after)


class ScaleByEdge(nn.Module):
    """x * y, and a bias of `shape` if there is one; after: axes of x behind those of y."""

    def __init__(self, shape: tuple[int, ...] | None, after: int) -> None:
        super().__init__()
        self.after = after
        self.bias = None if shape is None else nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:
        """(batch, ...) and factors, each with its own for every sample, to the shape of x."""
        before = x.dim() - factors.dim() - self.after
        x = x * _spread(factors.reshape(len(factors), *(1,) * before, *factors.shape[1:]), self.after)
        return x if self.bias is None else x + _spread(self.bias, self.after)


class AddParameters(nn.Module):
    """x + bias. shape: of the parameter; after: axes of x behind its own."""

    def __init__(self, shape: tuple[int, ...], after: int) -> None:
        super().__init__()
        self.after = after
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to the same shape."""
        return x + _spread(self.bias, self.after)


class AddEdge(nn.Module):
    """x + y; after: axes of x behind those of y."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: Tensor, added: Tensor) -> Tensor:
        """(batch, ...) and what is added, of its own for every sample, to the shape of x."""
        before = x.dim() - added.dim() - self.after
        return x + _spread(added.reshape(len(added), *(1,) * before, *added.shape[1:]), self.after)


class MeanVariance(nn.Module):
    """Mean 0 over all axes from `axis` on, and a deviation of 1; eps: added to it; None: the deviation stays."""

    def __init__(self, axis: int, eps: float | None) -> None:
        super().__init__()
        self.axis, self.eps = axis, eps

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to the same shape."""
        axes = tuple(range(self.axis, x.dim()))
        x = x - x.mean(axes, keepdim=True)
        return x if self.eps is None else x / (x.square().mean(axes, keepdim=True).sqrt() + self.eps)


def _spread(values: Tensor, after: int) -> Tensor:
    return values.reshape(*values.shape, *(1,) * after)
