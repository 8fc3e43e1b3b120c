"""Networks that read the weight of a layer by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ReadByHand(nn.Module):
    """Its forward reads the weight of its second layer. followed: torch.fx can follow it."""

    def __init__(self, followed: bool = True) -> None:
        super().__init__()
        self.first, self.last, self.followed = nn.Linear(6, 4), nn.Linear(4, 4), followed

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x) if self.followed or x.sum() < torch.inf else x
        return nn.functional.linear(hidden, self.last.weight)


class Within(nn.Sequential):
    """A layer, and such a network, which cannot be followed."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 6), ReadByHand(followed=False))
