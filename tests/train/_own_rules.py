"""Update rules of a user's own, as sessions of these tests name them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Signs(torch.optim.Optimizer):
    """Moves each value by the sign of a mean of its gradients: each value on its own."""

    elementwise = True

    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.01, keep: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "keep": keep})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                    mean.lerp_(parameter.grad, 1 - group["keep"])
                    parameter.sub_(mean.sign(), alpha=group["lr"])


class Rows(torch.optim.Optimizer):
    """Moves each row of a matrix by its gradient in units of the row's largest so far: needs whole parameters."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    rows = parameter.grad.abs().reshape(parameter.shape[0], -1).amax(1)
                    largest = self.state[parameter].setdefault("largest", torch.full_like(rows, 1e-3))
                    torch.maximum(largest, rows, out=largest)
                    shape = (-1, *[1] * (parameter.dim() - 1))
                    parameter.sub_(parameter.grad / largest.view(shape), alpha=group["lr"])
