"""The common part of Volary's own optimisers: the step that torch's optimisers have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def evaluated(closure: Callable[[], float]) -> float:
    """The loss that a user's closure computes, with the gradients that its backward leaves."""
    with torch.enable_grad():
        return closure()


class ByGroup(Optimizer, ABC):
    """An optimiser that updates the parameters of a group at once."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters that have gradients, as torch's optimisers do."""
        loss = None if closure is None else evaluated(closure)
        for group in self.param_groups:
            if values := [one for one in group["params"] if one.grad is not None]:
                self._update_group(values, [one.grad for one in values], group)
        return loss

    @abstractmethod
    def _update_group(self, values: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Update the values of parameters, each of its gradient's shape. group: their settings."""
