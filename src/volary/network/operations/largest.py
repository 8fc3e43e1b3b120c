"""The largest values, and where they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ArgMax(nn.Module):
    """See `ArgMaxLayer`. axis: with the batch as 0; None: of all values. shape: of a sample of what it makes."""

    def __init__(self, top: int, axis: int | None, shape: tuple[int, ...], *, values: bool) -> None:
        super().__init__()
        self.top, self.axis, self.shape, self.values = top, axis, shape, values

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) to (batch, *shape)."""
        if self.axis is not None:
            largest, places = x.topk(self.top, self.axis)
            return largest if self.values else places.to(x.dtype)
        largest, places = x.flatten(1).topk(self.top, 1)
        found = torch.stack([places.to(x.dtype), largest], 1) if self.values else places.to(x.dtype)
        return found.reshape(len(x), *self.shape)
