"""Two of torch's rules as one optimiser: Muon for matrices, AdamW for parameters of any other number of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from volary.train.update.rules.by_group import evaluated


class MatricesApart(Optimizer):
    """One group of parameters, of any shapes, that have a learning rate and a weight decay in common.

    settings: Muon's; betas: AdamW's.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        **settings: Any,
    ) -> None:
        """parameters: of any shapes."""
        own = list(parameters)
        super().__init__(own, {"lr": lr, "weight_decay": weight_decay})
        matrices, others = [one for one in own if one.ndim == 2], [one for one in own if one.ndim != 2]
        self._muon = Muon(matrices, lr, weight_decay, **settings) if matrices else None
        self._adamw = AdamW(others, lr, betas, weight_decay=weight_decay) if others else None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Let each rule update its parameters, with the state, rates and decays that this optimiser has by now."""
        loss = None if closure is None else evaluated(closure)
        for rule in (self._muon, self._adamw):
            if rule is not None:
                rule.state, rule.param_groups = self.state, self._groups_of(rule)
                rule.step()  # type: ignore[no-untyped-call]
        return loss

    def _groups_of(self, rule: Optimizer) -> list[dict[str, Any]]:
        """This optimiser's groups, each with what of its parameters the rule is for, and the rule's other settings."""
        own = [
            [one for one in group["params"] if (one.ndim == 2) == (rule is self._muon)] for group in self.param_groups
        ]
        return [{**rule.defaults, **group, "params": some} for group, some in zip(self.param_groups, own, strict=True)]
