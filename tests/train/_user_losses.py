"""Losses and update rules of a user's own, as sessions of these tests name them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PositionsWeighted(nn.CrossEntropyLoss):
    """Torch's, of scores whose classes come last, with weights of classes."""

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__(torch.tensor([0.1, 1.0, 3.0, 0.5], dtype=torch.float64), ignore_index=ignore_index)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return super().forward(output.transpose(1, 2), target)


def masked(output: Tensor, target: Tensor) -> Tensor:
    """The mean distance to one, over the positions that count."""
    there = target != -100
    return ((output - 1).square().sum(-1) * there).sum() / there.sum()


masked.counted = lambda target: (target != -100).sum()  # type: ignore[attr-defined]


def unsaid(output: Tensor, target: Tensor) -> Tensor:
    """The same, and does not say how many count."""
    return masked(output, target)


def sloping(output: Tensor, target: Tensor) -> Tensor:
    """A loss of `Scores` whose gradient is the same whatever the parameters are."""
    there = target != -100
    slopes = (torch.arange(output.shape[-1]) * (target + 1).unsqueeze(-1)).sin()
    return ((output * slopes).sum(-1) * there).sum() / there.sum()


sloping.counted = lambda target: (target != -100).sum()  # type: ignore[attr-defined]


def squared(output: Tensor, target: Tensor) -> Tensor:
    """The mean over all values, those that are filled up, too."""
    return (output - target).square().mean()


def known(output: Tensor, target: Tensor) -> Tensor:
    """The mean over the values that are numbers; it does not know of those that are filled up."""
    return (output - target)[~target.isnan()].square().mean()


known.counted = lambda target: (~target.isnan()).sum()  # type: ignore[attr-defined]


def there(output: Tensor, target: Tensor) -> Tensor:
    """The mean over the values that are not filled up."""
    return (output - target)[target != -100].square().mean()


there.counted = lambda target: (target != -100).sum()  # type: ignore[attr-defined]


class OwnRule(torch.optim.Optimizer):
    """Plain descent, written by hand; nothing says that it updates each value on its own."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad


class OwnElementwiseRule(OwnRule):
    """The same, and says so."""

    elementwise = True
