"""Several ways side by side: each sees the same input, their outputs are joined along the channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Branches(nn.ModuleList):
    """The branches' outputs (batch, channels_i, height, width) become (batch, sum of channels_i, height, width)."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(branches)

    def forward(self, x: Tensor) -> Tensor:
        """The joined outputs, in the branches' order."""
        return torch.cat([branch(x) for branch in self], dim=1)
