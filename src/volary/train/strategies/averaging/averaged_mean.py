"""The mean of workers' parameters, of which an average is kept (EMA, SWA) where nothing else updates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from volary.sharding.ranges import Range
from volary.train.state.part_state import PartState
from volary.train.update.averaging import Averages
from volary.train.update.optimizer_rule import state_as

if TYPE_CHECKING:
    from torch import Tensor

    from volary.server.update_rule import MeanRule, SliceUpdate
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.averaging import Averaging


class AveragedMean:
    """See `volary.server.update_rule.UpdateRule`. Of `slices`, by number: values of parts, see `SliceOptimizer`."""

    changes_sums = False

    def __init__(self, mean: MeanRule, slices: Mapping[int, Mapping[Range, Tensor]], averaging: Averaging) -> None:
        self._mean, self._slices, self._averaging = mean, slices, averaging
        self._averages = {number: Averages() for number in slices}

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Become the mean, which enters the average."""
        self._mean.apply(number, values, update)
        self._averages[number].take(values, self._averaging, update)

    def average(self, number: int) -> Tensor | None:
        """The average of a slice that is one tensor, (...) in its shape; None: none yet."""
        return self._averages[number].of(0)

    def state(self, number: int, *, copied: bool = True) -> list[PartState]:
        """The average of each part. copied: see `SliceOptimizer.state`."""
        averages = self._averages[number]
        return [
            PartState(part, *averages.state(place, copied=copied)) for place, part in enumerate(self._slices[number])
        ]

    def restore(self, number: int, state: OptimizerState) -> None:
        for place, (part, values) in enumerate(self._slices[number].items()):
            self._averages[number].restore(place, state_as(state.of(part), values))
