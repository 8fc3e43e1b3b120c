"""Mean absolute error, in the unit of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.network.metrics._base import MeanMetric, mean_of_sample

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AbsoluteError(MeanMetric):
    """How far outputs are from their targets, a mean over all values."""

    outputs: ClassVar[Literal["values"]] = "values"
    higher_is_better: ClassVar[bool] = False

    def total(self, output: Tensor, target: Tensor) -> Tensor:
        return mean_of_sample((output - target).abs()).sum()


METRIC = AbsoluteError
