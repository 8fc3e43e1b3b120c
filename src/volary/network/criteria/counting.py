"""Counts what a loss of the user's or of torch divides by, if targets alone decide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.errors import SettingError

Counter = Callable[[Tensor], Any]  # given the targets (n, ...)

_FUNCTIONS: tuple[Any, ...] = (functional.cross_entropy, functional.nll_loss)
_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)


def counter_of(loss: Any, name: str) -> Counter | None:
    """Return the counter of targets for `loss`: its own `counted`, or one for torch's; None: each sample counts alike.

    A counter gives None, too, for targets that all count alike. Raises SettingError for one that is no function.
    """
    function, given = (loss.func, loss.keywords) if isinstance(loss, partial) else (loss, {})
    own = getattr(function, "counted", None)
    if own is not None:
        if not callable(own):
            raise SettingError(f"loss {name!r} has counted of type {type(own).__name__}; accepted: counted(target)")
        return own  # type: ignore[no-any-return]
    if function in _FUNCTIONS:
        return _of_classes(given)
    return _of_classes(vars(loss) | dict(loss.named_buffers())) if isinstance(loss, _CLASSES) else None


def _of_classes(settings: Mapping[str, Any]) -> Counter | None:
    """The counter of torch's cross-entropy with these settings: it sums weights of classes that are not ignored."""
    ignored, weight = settings.get("ignore_index", -100), settings.get("weight")
    if settings.get("reduction", "mean") != "mean":
        return None

    def counted(target: Tensor) -> float | None:
        if target.is_floating_point():  # probabilities: none is ignored, and class weights do not change the divisor
            return None
        there = target[target != ignored].long()
        if weight is None:
            return there.numel()
        # one that no score belongs to is for the loss itself to refuse
        known = there[(there >= 0) & (there < len(weight))]
        return float(weight.to(target.device, torch.float64)[known].sum())

    return counted
