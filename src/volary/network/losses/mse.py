"""Mean squared error, for regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from volary.network.checks import metrics
from volary.network.criterion import Criterion
from volary.network.losses._base import Loss
from volary.session.reading.choice import Choice


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(Loss):
    """The square of the difference between output and target, a mean over all values."""

    metric: str = "loss"  # what decides which checkpoint is the best: loss, or a metric of values
    metrics: tuple[
        Annotated[Any, Choice("volary.network.metrics")], ...
    ] = ()  # others to measure, as [r2, absolute_error]

    def __post_init__(self) -> None:
        metrics(self.metric, self.metrics, ("values",))

    def build(self) -> Criterion:
        """The criterion; outputs and targets have the same shape."""
        from volary.network.criteria.squared_error import SquaredError

        return SquaredError(self.metric, self.metrics)


LOSS = MeanSquaredError
