"""Signs of gradients, or of their moving average, as an optimiser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from volary.train.update.rules.by_group import ByGroup

AVERAGE = "momentum_buffer"


class Signs(ByGroup):
    """Signum (Bernstein et al. 2018, algorithm 2), with g of value w:

    m becomes momentum * m + (1 - momentum) * g, and w becomes w - lr * (sign(m) + weight_decay * w).
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        """parameters: of any shapes."""
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _update_group(self, values: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        averages = gradients
        if momentum := group["momentum"]:
            for one in values:
                if AVERAGE not in self.state[one]:
                    self.state[one][AVERAGE] = torch.zeros_like(one)
            averages = [self.state[one][AVERAGE] for one in values]
            torch._foreach_lerp_(averages, gradients, 1 - momentum)
        if group["weight_decay"]:
            torch._foreach_mul_(values, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(values, torch._foreach_sign(averages), alpha=-group["lr"])
