"""Torch's L-BFGS, an iteration a step: by the gradients that are there, without another loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import LBFGS

from volary.errors import RunError
from volary.server.batch_methods.lbfgs import PREVIOUS


class OneIteration(LBFGS):
    """One group of parameters, of any shapes; `step` needs no closure."""

    def __init__(self, parameters: Any, **settings: Any) -> None:
        """parameters: of any shapes."""
        super().__init__(parameters, max_iter=1, **settings)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there. Raises RunError for vectors that servers kept, and a coordinator has the rest of."""
        if any(PREVIOUS in one for one in state_dict["state"].values()):
            raise RunError(
                "the checkpoint has what servers remember for optimizer lbfgs; accepted: exchange=server, as before, "
                "or a new run"
            )
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update by the gradients that the parameters have; with one iteration the loss decides nothing."""
        kept = [(one, one.grad) for one in self.param_groups[0]["params"] if one.grad is not None]
        for one, gradient in kept:
            one.grad = gradient.contiguous()  # torch views it as a vector, which one in channels last does not allow
        try:
            return super().step(lambda: torch.zeros(()))  # type: ignore[no-untyped-call]
        finally:
            for one, gradient in kept:
                one.grad = gradient
