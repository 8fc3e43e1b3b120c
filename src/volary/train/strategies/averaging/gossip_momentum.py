"""The momentum of gossip: NoLoCo (Kolehmainen et al. 2025, arXiv:2506.10911), DiLoCo without a sum over all workers.

With slow weights phi, which a worker begins a period with, and theta, where that has led it, its partners' and its own
being a group of n:

    delta  becomes  alpha delta + beta / n sum (theta_j - phi_j) - gamma (phi - 1 / n sum phi_j)
    phi  becomes  phi + delta

Both sums are one: a worker sends beta theta + (gamma - beta) phi, as many values as parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from volary.exchange.gradients.bucket import ParameterSlot


class GossipMomentum:
    """The momentum of a worker's fast weights: these parameters, by name. momentum, lr, gamma: alpha, beta, gamma."""

    def __init__(self, trained: Mapping[str, Tensor], momentum: float, lr: float, gamma: float) -> None:
        self._trained = trained
        self._momentum, self._lr, self._gamma = momentum, lr, gamma
        self._slow = {name: one.clone() for name, one in trained.items()}
        self._steps = {name: torch.zeros_like(one) for name, one in trained.items()}
        self._left: dict[str, Tensor] = {}  # fast weights as they were when they left

    @torch.no_grad()
    def begin(self) -> None:
        """Go on from the parameters as they are, without momentum."""
        for name, one in self._trained.items():
            self._slow[name].copy_(one)
            self._steps[name].zero_()

    @torch.no_grad()
    def write(self, slot: ParameterSlot) -> None:
        """Write what is sent of a parameter."""
        torch.mul(slot.parameter, self._lr, out=slot.view)
        slot.view.add_(self._slow[slot.name], alpha=self._gamma - self._lr)
        self._left[slot.name] = slot.parameter.detach().clone()

    @torch.no_grad()
    def take(self, slot: ParameterSlot) -> None:
        """Step by the mean of what the group has sent; what was changed since stays."""
        slow = self._slow[slot.name]
        slow.add_(self._steps[slot.name].mul_(self._momentum).add_(slot.agreed).sub_(slow, alpha=self._gamma))
        moved = slot.parameter - self._left.pop(slot.name)
        torch.add(slow, moved, out=self._trained[slot.name])

    def state(self) -> dict[str, Any]:
        """The state that a worker continues from, besides its parameters."""
        return {"slow": self._slow, "steps": self._steps}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        for name in self._trained:
            self._slow[name].copy_(state["slow"][name])
            self._steps[name].copy_(state["steps"][name])
