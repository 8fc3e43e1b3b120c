"""Mixup: the mean of two samples, with a weight that is drawn for each batch (Zhang et al. 2018, arXiv:1710.09412)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.session.checks import require

if TYPE_CHECKING:
    from random import Random

    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Mixup:
    """Each value is the mean of two samples' values; inputs of any shape."""

    alpha: float = 0.2  # of the beta distribution that weights are drawn from; 1: any weight is as likely

    def __post_init__(self) -> None:
        require(self.alpha > 0, "alpha", self.alpha, "above 0")

    def refusal(self, input_shape: tuple[int, ...]) -> str:
        return ""

    def mixed(self, inputs: Tensor, others: Tensor, share: float, draw: Random) -> tuple[Tensor, float]:
        return inputs.lerp(others, 1 - share), share


MIXING = Mixup
