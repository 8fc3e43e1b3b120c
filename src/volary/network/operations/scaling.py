"""A factor, and perhaps a bias, for each channel."""

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


def _spread(values: Tensor, after: int) -> Tensor:
    return values.reshape(*values.shape, *(1,) * after)
