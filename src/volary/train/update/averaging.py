"""Averages of the values that an update changes, slice by slice, wherever that is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.gradients.plan import in_memory_order
from volary.train.averages.none import NoAverage
from volary.train.state.part_state import AVERAGE, AVERAGED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from volary.server.update_rule import SliceUpdate
    from volary.session.train_section import Train
    from volary.train.averages._base import Average


@dataclass(frozen=True)
class Averaging:
    """An average, and the steps that its periods are counted in. done: those of the run after an update.

    used_alone: what an update has no gradient of does not enter, as it may be another optimiser's.
    """

    average: Average
    steps_per_epoch: int
    done: Callable[[SliceUpdate], int]
    used_alone: bool = False

    @classmethod
    def of(
        cls, settings: Train, steps_per_epoch: int, done: Callable[[SliceUpdate], int] = attrgetter("done")
    ) -> Averaging | None:
        """The average that a session keeps, if it does."""
        average = settings.average
        return None if isinstance(average, NoAverage) else cls(average, steps_per_epoch, done)


class Averages:
    """The averages of values, by their place among those of a slice: none before something has entered them."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, int, int]] = {}  # with what AVERAGED says of it

    @torch.no_grad()
    def take(self, slice_values: Sequence[Tensor], averaging: Averaging, update: SliceUpdate) -> None:
        """Let all values of the slice as they are after an update enter their averages, if it is time."""
        done = averaging.done(update)
        for place, values in enumerate(slice_values):
            if averaging.used_alone and update.sums[place] is None:
                continue
            average, count, newest = self._kept.get(place, (values, 0, 0))
            if (new := averaging.average.share(count, newest, done, averaging.steps_per_epoch)) is None:
                continue
            entered = average.lerp_(values, new) if count else values.detach().clone()
            self._kept[place] = entered, count + 1, done

    def of(self, place: int) -> Tensor | None:
        """The average there (...), in the shape of its values; None: none yet."""
        return self._kept[place][0] if place in self._kept else None

    def state(self, place: int, *, copied: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of one, as `each` and `whole` of a `PartState`."""
        if place not in self._kept:
            return {}, {}
        average, *entered = self._kept[place]
        return {AVERAGE: in_memory_order(average.clone() if copied else average)}, {AVERAGED: entered}

    def restore(self, place: int, entries: dict[str, Any]) -> None:
        """Go on from what a part's entries have of its average, in the shape of its values, and take that out."""
        self._kept.pop(place, None)
        average, entered = entries.pop(AVERAGE, None), entries.pop(AVERAGED, None)
        if average is not None:
            self._kept[place] = average, *entered

    @torch.no_grad()
    def swap(self, slice_values: Sequence[Tensor]) -> None:
        """Let values and averages change places, where there are some."""
        for place, (average, *_) in self._kept.items():
            values = slice_values[place].detach()
            own = values.clone()
            values.copy_(average)
            average.copy_(own)
