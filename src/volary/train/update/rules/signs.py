"""Signs of gradients, or of their moving average, as an optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

AVERAGE = "momentum_buffer"


class Signs(Optimizer):
    """Signum (Bernstein et al. 2018, algorithm 2), with g of value w:

    m becomes momentum * m + (1 - momentum) * g, and w becomes w - lr * (sign(m) + weight_decay * w).
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        """parameters: of any shapes."""
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters that have gradients, as torch's optimisers do."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            values = [one for one in group["params"] if one.grad is not None]
            if values:
                self._step(values, group)
        return loss

    def _step(self, values: list[Tensor], group: dict[str, Any]) -> None:
        averages = [one.grad for one in values]
        if momentum := group["momentum"]:
            for one in values:
                if AVERAGE not in self.state[one]:
                    self.state[one][AVERAGE] = torch.zeros_like(one)
            gradients, averages = averages, [self.state[one][AVERAGE] for one in values]
            torch._foreach_lerp_(averages, gradients, 1 - momentum)  # type: ignore[arg-type]
        if group["weight_decay"]:
            torch._foreach_mul_(values, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(values, torch._foreach_sign(averages), alpha=-group["lr"])  # type: ignore[arg-type]
