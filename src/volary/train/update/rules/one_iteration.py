"""Torch's L-BFGS, an iteration a step: by the gradients that are there, without another loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import LBFGS


class OneIteration(LBFGS):
    """One group of parameters, of any shapes; `step` needs no closure."""

    def __init__(self, parameters: Any, **settings: Any) -> None:
        """parameters: of any shapes."""
        super().__init__(parameters, max_iter=1, **settings)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update by the gradients that the parameters have; with one iteration the loss decides nothing."""
        return super().step(lambda: torch.zeros(()))  # type: ignore[no-untyped-call]
