"""Networks of several branches."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Branched(nn.Module):
    """Two ways that meet, one with batch norm and one that changes what it is given, and one beside that is frozen.

    norm: with it; else as data parallel workers, each with a share of the batch, have the same.
    """

    def __init__(self, dropout: float = 0.0, norm: bool = True) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout))
        normed = nn.BatchNorm1d(7) if norm else nn.Softplus()
        self.left = nn.Sequential(nn.Linear(8, 7), normed, nn.Tanh(), nn.Dropout(dropout), nn.Linear(7, 5))
        self.right = nn.Sequential(nn.Hardswish(inplace=True), nn.Linear(8, 5), nn.Tanh())
        self.beside = nn.Linear(6, 5).requires_grad_(requires_grad=False)
        self.last = nn.Sequential(nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 4))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.double()
        hidden = self.first(inputs)
        return self.last(self.left(hidden) * self.right(hidden * 1.0) + self.beside(inputs))


class StopsWithin(nn.Module):
    """A branch through which no gradient of what it is given comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.last = nn.Linear(6, 8), _Detached(8, 8), nn.Linear(8, 4)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(inputs.double()))
        return self.last(self.left(hidden) + hidden)


class _Detached(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.detach())
