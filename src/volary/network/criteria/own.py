"""A user's own loss function as a criterion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from volary.errors import SettingError


class OwnLoss:
    """Calls `function(output, target)`, which gives the mean over the samples as a scalar; measures that loss."""

    measured = ("loss",)
    metric = "loss"
    higher_is_better = False

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """The function's value; SettingError if that is not a scalar tensor."""
        loss = self.function(output, target)
        if not isinstance(loss, Tensor) or loss.dim():
            gave = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise SettingError(f"loss {self.name!r} gives {gave}; accepted: a scalar tensor, the mean over the samples")
        return loss

    def totals(self, output: Any, target: Tensor) -> Tensor:
        """One row: the loss times the samples, and how many samples."""
        samples = len(target)
        loss = self(output, target).double() * samples
        return torch.stack([loss, torch.full_like(loss, samples)]).unsqueeze(0)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The loss, if there was a sample."""
        total, count = totals[0].tolist()
        return {"loss": total / count} if count else {}

    def check(self, network: str, output: Any, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Nothing: only the function itself knows which outputs it takes."""
