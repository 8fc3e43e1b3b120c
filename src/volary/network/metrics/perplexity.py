"""Perplexity: e to the cross-entropy per position, without label smoothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.metrics._base import MeanMetric

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 700.0  # beyond 709 a float overflows


@dataclass(frozen=True, kw_only=True)
class Perplexity(MeanMetric):
    """Among how many symbols a model that guesses as well would have to choose."""

    outputs: ClassVar[Literal["positions"]] = "positions"
    higher_is_better: ClassVar[bool] = False

    def total(self, output: Tensor, target: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, target, reduction="sum")

    def figure(self, mean: float) -> float:
        return math.exp(min(mean, LARGEST))


METRIC = Perplexity
