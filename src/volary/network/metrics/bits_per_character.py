"""Bits per character (or per token): the cross-entropy per position to base 2, without label smoothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.metrics._base import MeanMetric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BitsPerCharacter(MeanMetric):
    """How many bits a code by the model's probabilities takes for a symbol, a mean over all positions."""

    outputs: ClassVar[Literal["positions"]] = "positions"
    higher_is_better: ClassVar[bool] = False

    def total(self, output: Tensor, target: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, target, reduction="sum")

    def figure(self, mean: float) -> float:
        return mean / math.log(2)


METRIC = BitsPerCharacter
