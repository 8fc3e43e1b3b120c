"""Mean squared error, for regression."""

from __future__ import annotations

from dataclasses import dataclass

from volary.network.criterion import Criterion
from volary.network.losses._base import Loss


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(Loss):
    """The square of the difference between output and target, a mean over all values."""

    def build(self) -> Criterion:
        """The criterion; outputs and targets have the same shape."""
        from volary.network.criteria.squared_error import SquaredError

        return SquaredError()


LOSS = MeanSquaredError
