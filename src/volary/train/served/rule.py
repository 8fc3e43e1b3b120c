"""The session's update rule on a server: an optimiser of each slice, its learning rate by the server's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch

from volary.data.feed import Feed
from volary.exchange.gradients.plan import laid_out_as
from volary.train.assemble import update_rule
from volary.train.update.rule import SliceOptimizer

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples
    from volary.server.protocol.slices import Slice
    from volary.server.shards.vault import SliceUpdate
    from volary.session.spec import Session
    from volary.train.schedules._base import Schedule
    from volary.train.served.layout import Layout
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.rule import PartState


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


class OptimizerRule:
    """See `volary.server.shards.vault.Rule`. Slices of whole parameters are given to the optimiser in their shape."""

    changes_total = True

    def __init__(
        self,
        session: Session,
        layout: Layout,
        slices: Sequence[Slice],
        clock: Clock,
        rates: RateChanges | None = None,
    ) -> None:
        self._clock, self._rates = clock, rates or RateChanges()
        build, elementwise = update_rule(session)
        self._bounds = _bounds(slices)
        self._slices = {
            one.number: SliceOptimizer(
                [layout.part(part, whole=not elementwise) for part in one.parts],
                build,
                elementwise,
                session.train.clip_value,
            )
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
        if (lr := self._rates.at(update.samples)) is not None:
            one.change_rate(lr)
        one.step(self._clock.factor(update.samples))

    def state(self, number: int) -> list[PartState]:
        """Copies of what the optimiser remembers of each part."""
        return self._slices[number].state()

    def restore(self, number: int, state: OptimizerState) -> None:
        """Go on from there, however it was cut."""
        self._slices[number].restore(state)


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
