"""Averages of the values that an update changes, slice by slice, wherever that is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.train.averages.none import NoAverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from volary.session.spec import Train
    from volary.train.averages._base import Average

AVERAGE, AVERAGED = "average", "averaged"  # in the state of a part: the values, and how often some have entered them
Share = Callable[[int], float | None]


@dataclass(frozen=True)
class Averaging:
    """A session's average, and the steps that its periods are counted in."""

    average: Average
    steps_per_epoch: int

    @classmethod
    def of(cls, settings: Train, steps_per_epoch: int) -> Averaging | None:
        """The average that a session keeps, if it does."""
        average = settings.average
        return None if isinstance(average, NoAverage) else cls(average, steps_per_epoch)

    def after(self, done: int) -> Share:
        """What enters the average after so many updates, by how often something has."""
        return lambda count: self.average.share(count, done, self.steps_per_epoch)


class Averages:
    """The averages of `values`, which may move in memory: none before something has entered them."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        self._values = values
        self._kept: dict[int, tuple[Tensor, int]] = {}  # by the place among the values

    @torch.no_grad()
    def take(self, share: Share) -> None:
        """Let the values as they are now enter the averages."""
        for place, values in enumerate(self._values):
            average, count = self._kept.get(place, (values, 0))
            if (new := share(count)) is None:
                continue
            self._kept[place] = average.lerp_(values, new) if count else values.detach().clone(), count + 1

    def of(self, values: Tensor) -> tuple[Tensor, int] | None:
        """The average (...) of these values, in their shape, and how often some have entered; None: none yet."""
        return self._kept.get(self._place(values)) if self._kept else None

    def restore(self, values: Tensor, average: Tensor | None, count: int) -> None:
        """Go on from the average (...) of these values, in their shape; None: from none."""
        self._kept.pop(self._place(values), None)
        if average is not None:
            self._kept[self._place(values)] = average, count

    @torch.no_grad()
    def swap(self) -> None:
        """Let values and averages change places, where there are some."""
        for place, (average, _) in self._kept.items():
            values = self._values[place].detach()
            own = values.clone()
            values.copy_(average)
            average.copy_(own)

    def _place(self, values: Tensor) -> int:
        return next(place for place, one in enumerate(self._values) if one is values)
