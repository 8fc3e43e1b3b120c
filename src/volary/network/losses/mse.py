"""Mean squared error, for regression."""

from __future__ import annotations

from dataclasses import dataclass

from volary.network.checks import metric
from volary.network.criterion import Criterion
from volary.network.losses._base import Loss


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(Loss):
    """The square of the difference between output and target, a mean over all values."""

    metric: str = "loss"  # what decides which checkpoint is the best: loss, or a metric of values

    def __post_init__(self) -> None:
        metric(self.metric, ("values",))

    def build(self) -> Criterion:
        """The criterion; outputs and targets have the same shape."""
        from volary.network.criteria.squared_error import SquaredError

        return SquaredError(self.metric)


LOSS = MeanSquaredError
