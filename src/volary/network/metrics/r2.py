"""R², the coefficient of determination: the share of the targets' variance that outputs explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.metrics._base import Metric, mean_of_sample

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 1e-14  # a variance below this part of the mean square is rounding


@dataclass(frozen=True, kw_only=True)
class RSquared(Metric):
    """1 minus squared errors over squared deviations from the mean target, of all values; NaN if that is 0."""

    outputs: ClassVar[Literal["values"]] = "values"
    higher_is_better: ClassVar[bool] = True

    def rows(self, classes: int) -> int:
        return 3

    def sums(self, output: Tensor, target: Tensor, classes: int) -> Tensor:
        import torch

        output, target = output.double(), target.double()
        squares = ((output - target).square(), target, target.square())
        return torch.stack([mean_of_sample(one).sum() for one in squares])

    def figures(self, sums: Sequence[float], count: float) -> dict[str, float]:
        error, mean, square = (one / count for one in sums)
        variance = square - mean**2
        return {self.name: 1 - error / variance if variance > SMALLEST * square else nan}


METRIC = RSquared
