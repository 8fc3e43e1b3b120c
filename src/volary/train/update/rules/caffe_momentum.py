"""Stochastic gradient descent as Caffe has it: the learning rate is inside of what momentum carries over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from volary.train.update.rules.by_group import ByGroup

HISTORY = "history"


class CaffeMomentum(ByGroup):
    """V becomes momentum * V + lr * g, and w becomes w - V (BVLC/caffe, sgd_solver.cpp); g has the decay in it.

    In torch.optim.SGD the rate is outside. Both go the same way while it stays; after a change of it what Caffe carries
    over still has the old rate. nesterov: w - ((1 + momentum) * V - momentum * V before). decay: what a weight_decay
    adds to the gradient: its factor times the value (l2), or its sign (l1).
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        momentum: float,
        weight_decay: float,
        *,
        nesterov: bool,
        decay: Literal["l2", "l1"],
    ) -> None:
        """parameters: of any shapes."""
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "decay": decay,
        }
        super().__init__(parameters, defaults)

    def _update_group(self, values: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        if decay := group["weight_decay"]:
            penalties = values if group["decay"] == "l2" else list(torch._foreach_sign(values))
            gradients = list(torch._foreach_add(gradients, penalties, alpha=decay))
        momentum = group["momentum"]
        if not momentum:
            torch._foreach_add_(values, gradients, alpha=-group["lr"])
            return
        for one in values:
            if HISTORY not in self.state[one]:
                self.state[one][HISTORY] = torch.zeros_like(one)
        history = [self.state[one][HISTORY] for one in values]
        if group["nesterov"]:
            torch._foreach_add_(values, history, alpha=momentum)
        torch._foreach_mul_(history, momentum)
        torch._foreach_add_(history, gradients, alpha=group["lr"])
        torch._foreach_add_(values, history, alpha=-(1 + momentum) if group["nesterov"] else -1)
