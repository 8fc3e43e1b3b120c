"""The update rule on a server: an optimiser of each slice; a session's learning rate follows the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol

import torch

from volary.data.feed import Feed
from volary.exchange.gradients.plan import laid_out_as
from volary.train.assemble import update_rule
from volary.train.update.rule import SliceOptimizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.data.samples import Samples
    from volary.server.protocol.slices import Slice
    from volary.server.shards.slice_store import SliceUpdate
    from volary.session.spec import Session
    from volary.train.schedules._base import Schedule
    from volary.train.served.layout import Layout
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.rule import PartState, SlicePart


@dataclass(frozen=True)
class Clock:
    """What the learning rate goes by: the updates that one device would have done with as many samples.

    samples: of an epoch, the last batch of which may be smaller. steps: of the whole run.
    """

    schedule: Schedule
    samples: int
    batch_size: int
    steps: int

    @classmethod
    def of(cls, session: Session, samples: Samples) -> Clock:
        """A session's."""
        feed = Feed(samples, session.data.batch_size, shuffle=False)
        steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
        return cls(session.schedule, len(samples), session.data.batch_size, steps)

    def factor(self, samples: int) -> float:
        """Of the learning rate, for the update that brings the run to so many samples."""
        epoch, rest = divmod(max(0, samples - 1), self.samples)
        step = epoch * -(-self.samples // self.batch_size) + rest // self.batch_size
        return self.schedule.factor(step, self.steps)


class RateChanges:
    """What the learning rate became while the run trains. Another thread than those that ask may add to it."""

    def __init__(self) -> None:
        self._changes: tuple[tuple[int, float], ...] = ()

    def add(self, samples: int, lr: float) -> None:
        """From now on updates that bring the run beyond so many samples have this rate, before any schedule."""
        self._changes = (*self._changes, (samples, lr))

    def at(self, samples: int) -> float | None:
        """Of the update that brings the run to so many samples; None: the session's."""
        return next((lr for beyond, lr in reversed(self._changes) if samples > beyond), None)


class Updating(Protocol):
    """Which optimiser a run's servers use, and how it takes its steps; see `SliceOptimizer`."""

    @property
    def elementwise(self) -> bool:
        """Whether each value is updated by its own gradient and state alone."""
        ...

    @property
    def clip_value(self) -> float | None:
        """Bound of each gradient value."""
        ...

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """What makes the optimiser of the parameters, or parts of them, with these names."""
        ...

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take a step with the gradients that were taken."""
        ...


class SessionUpdating:
    """See `Updating`: as a session says. rates: how the learning rate changes meanwhile."""

    def __init__(self, session: Session, clock: Clock, rates: RateChanges) -> None:
        self._build, self.elementwise = update_rule(session)
        self.clip_value, self._clock, self._rates = session.train.clip_value, clock, rates

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """The same for all."""
        return self._build

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """With the learning rate that is due."""
        if (lr := self._rates.at(update.samples)) is not None:
            one.change_rate(lr)
        one.step(self._clock.factor(update.samples))


class OptimizerRule:
    """A `volary.server.shards.slice_store.Rule`: the optimiser gets slices of whole parameters in their shape."""

    changes_total = True

    def __init__(self, layout: Layout, slices: Sequence[Slice], updating: Updating) -> None:
        self._updating = updating
        self._bounds = _bounds(slices)
        self._slices = {
            one.number: self._optimizer([layout.part(part, whole=not updating.elementwise) for part in one.parts])
            for one in slices
        }

    def apply(self, number: int, values: Tensor, update: SliceUpdate) -> None:
        """Let the slice's optimiser take a step; parts that nobody used stay as they are."""
        one, bounds = self._slices[number], self._bounds[number]
        like = [part.values for part in one.parts]
        one.move([laid_out_as(part, values[start:end]) for part, (start, end) in zip(like, bounds, strict=True)])
        sums = [laid_out_as(part, update.total[start:end]) for part, (start, end) in zip(like, bounds, strict=True)]
        used = [one if update.used >> place & 1 else None for place, one in enumerate(sums)]
        one.take(used, update.scale, in_place=True)
        self._updating.step(one, update)

    def state(self, number: int) -> list[PartState]:
        """Copies of what the optimiser remembers of each part."""
        return self._slices[number].state()

    def restore(self, number: int, state: OptimizerState) -> None:
        """Go on from there, however it was cut."""
        self._slices[number].restore(state)

    def _optimizer(self, parts: list[SlicePart]) -> SliceOptimizer:
        updating, names = self._updating, [part.name for part in parts]
        return SliceOptimizer(parts, updating.build(names), updating.elementwise, updating.clip_value)


class MeanRule:
    """Of slices that workers update themselves: what they have changed, by their parts of the samples, is added."""

    changes_total = False

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._bounds = _bounds(slices)

    def apply(self, number: int, values: Tensor, update: SliceUpdate) -> None:
        """Become the mean of workers' parameters."""
        for place, (start, end) in enumerate(self._bounds[number]):
            if update.used >> place & 1:
                values[start:end].add_(update.total[start:end], alpha=update.scale)

    def state(self, number: int) -> list[PartState]:
        """Nothing."""
        return []

    def restore(self, number: int, state: OptimizerState) -> None:
        """Nothing."""


class BufferRule:
    """Of buffers: floats, as batch norm's statistics, become the mean of the contributions that carry them.

    Of anything else, as counters and masks, no mean can be had: it becomes what one contribution carries.
    """

    changes_total = False

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._bounds = _bounds(slices)

    def apply(self, number: int, values: Tensor, update: SliceUpdate) -> None:
        """Take what was carried, of the parts that somebody used."""
        for place, (start, end) in enumerate(self._bounds[number]):
            if update.used >> place & 1 and values.is_floating_point():
                torch.div(update.total[start:end], update.count, out=values[start:end])
            elif update.used >> place & 1:
                values[start:end] = update.total[start:end]

    def state(self, number: int) -> list[PartState]:
        """Nothing."""
        return []

    def restore(self, number: int, state: OptimizerState) -> None:
        """Nothing."""


def _bounds(slices: Sequence[Slice]) -> dict[int, list[tuple[int, int]]]:
    """Where the parts of each slice begin and end among its values."""
    return {one.number: list(pairwise(accumulate((part.size for part in one.parts), initial=0))) for one in slices}
