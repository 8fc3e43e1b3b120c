"""Eager updates: a worker's newest change counts at once, those of all others a turn later (Kale et al. 2025).

"Eager updates for overlapped communication and computation in DiLoCo", arXiv:2502.12996. With D the mean of what
workers have changed and d this worker's part of it, turn by turn, the outer rule steps by

    D(t - 1) - d(t - 1) + d(t)

and not by D(t), which is under way. So what workers have differs; its mean over all goes as if nothing came late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class EagerGuess:
    """Guesses parameters, by name: all tensors are in the parameter's shape, (...).

    scale: see `volary.server.update_rule.SliceUpdate`, in all methods.
    """

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        self._others = {name: torch.zeros_like(one) for name, one in like.items()}
        self._part: dict[str, Tensor] = {}

    def leave(self, part: dict[str, Tensor]) -> None:
        """This worker's part of the sum leaves: of each parameter, (...)."""
        self._part = part

    def guess(self, name: str, scale: float) -> Tensor:
        """The estimate of the sum, scaled, (...)."""
        return torch.add(self._others[name], self._part[name], alpha=scale)

    def arrive(self, name: str, agreed: Tensor, scale: float) -> None:
        """The sum of all parts (...) is here, that of this worker that left last among them."""
        torch.sub(agreed, self._part.pop(name), out=self._others[name]).mul_(scale)

    def state(self) -> dict[str, Any]:
        """The changes of others, when nothing is under way."""
        return self._others

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, one in self._others.items():
            one.copy_(state[name])
