"""The protocol of ways to mix samples."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Mixing(Protocol):
    """Settings of a way to mix samples; importing them imports no torch."""

    @property
    def alpha(self) -> float:
        """Both parameters of the beta distribution that a batch's share is drawn from, above 0."""
        ...

    def refusal(self, input_shape: tuple[int, ...]) -> str:
        """Why inputs (n, *input_shape) cannot be mixed so; empty if they can."""
        ...

    def mixed(self, inputs: Tensor, others: Tensor, share: float, draw: Random) -> tuple[Tensor, float]:
        """Inputs (n, ...) of which about `share` stays and the rest is of `others`, as many; and the share that stays.

        draw: gives the same numbers on all workers.
        """
        ...
