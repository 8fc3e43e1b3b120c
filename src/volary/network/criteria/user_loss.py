"""A loss function of the user's or of torch as a criterion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn import CrossEntropyLoss, Module
from torch.nn.functional import cross_entropy

from volary.errors import SettingError
from volary.network.criteria.counting import counter_of


class UserLoss:
    """Calls `function(output, target)`, which gives a mean as a scalar; measures that loss.

    The mean is over the samples, or over what counts of their targets, if the function says how much that is.
    """

    measured = ("loss",)
    metric = "loss"
    higher_is_better = False

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name
        self._counter = counter_of(function, name)

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """The function's value; SettingError if that is not a scalar tensor."""
        loss = self._on(target.device)(output, target)
        if not isinstance(loss, Tensor) or loss.dim():
            gave = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise SettingError(f"loss {self.name!r} gives {gave}; accepted: a scalar tensor, the mean over the samples")
        return loss

    def _on(self, device: torch.device) -> Callable[..., Any]:
        """The function with its tensors, as weights of classes, on `device`."""
        function = self.function
        if isinstance(function, Module):
            return function.to(device)
        if isinstance(function, partial):
            given = {
                name: one.to(device) if isinstance(one, Tensor) else one for name, one in function.keywords.items()
            }
            return partial(function.func, **given)
        return function

    def suit(self, classes: int) -> None:
        """Nothing, as there is no metric beside the loss."""

    @property
    def takes_shares(self) -> bool:
        """Whether targets may be shares of classes: those of torch's cross-entropy may."""
        function = self.function.func if isinstance(self.function, partial) else self.function
        return function is cross_entropy or isinstance(function, CrossEntropyLoss)

    @property
    def counts(self) -> bool:
        """Whether it is known how much of targets counts."""
        return self._counter is not None

    def counted(self, target: Tensor) -> float | None:
        """Ask the function. Raises SettingError if it does not give a number from 0."""
        found = None if self._counter is None else self._counter(target)
        if found is None:
            return None
        count = float(found)
        if not isfinite(count) or count < 0:
            raise SettingError(f"loss {self.name!r}: counted gives {count:g}; accepted: a number from 0")
        return count

    def totals(self, output: Any, target: Tensor) -> Tensor:
        """One row: the loss times the samples, or times what counts of them, and how many that is."""
        counted = self.counted(target)
        count = len(target) if counted is None else counted
        if not count:
            return torch.zeros(1, 2, dtype=torch.float64, device=target.device)
        loss = self(output, target).double() * count
        return torch.stack([loss, torch.full_like(loss, count)]).unsqueeze(0)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The loss, if there was a sample."""
        total, count = totals[0].tolist()
        return {"loss": total / count} if count else {}

    def check(self, network: str, output: Any, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Check nothing: only the function itself knows which outputs it takes."""
