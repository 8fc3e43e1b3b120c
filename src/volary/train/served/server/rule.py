"""The update rules on a server: of a session's optimiser, whose learning rate follows the clock, and of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.server.protocol.to_members import Rate
from volary.session.changing import planned_steps
from volary.sharding.epochs import Epochs
from volary.train.model import update_rule
from volary.train.update.averaging import Averaging
from volary.train.update.session_schedule import schedule_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.data.samples import Samples
    from volary.server.update_rule import SliceUpdate
    from volary.session.spec import Session
    from volary.train.factors.by_name import FactorsByName
    from volary.train.schedules._base import Schedule
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.state.part_state import PartState
    from volary.train.update.optimizer_rule import SliceOptimizer


@dataclass(frozen=True)
class Clock:
    """Counts updates for the learning rate: those that one device would have made with as many samples.

    steps: of the whole run.
    """

    schedule: Schedule
    epochs: Epochs
    steps: int

    @classmethod
    def of(cls, session: Session, samples: Samples) -> Clock:
        """The clock of a session's schedule."""
        epochs = Epochs(len(samples), session.data.batch_size)
        return cls(schedule_of(session, epochs.steps), epochs, planned_steps(session, epochs.steps))

    def factor(self, samples: int) -> float:
        """The factor of the learning rate for the update that brings the run to so many samples."""
        return self.schedule.factor(self.done(samples) - 1, self.steps)

    def done(self, samples: int) -> int:
        """The number of updates, the one included that brings the run to so many samples."""
        return self.step(max(0, samples - 1)) + 1

    def step(self, samples: int) -> int:
        """The number of the update that follows so many samples; 0 is the first."""
        return self.epochs.steps_of(samples)


def averaging_of(session: Session, clock: Clock) -> Averaging | None:
    """The average that servers keep of a session's weights, if it has one."""
    return Averaging.of(session.train, clock.epochs.steps, lambda update: clock.done(update.samples))


_AS_SET = Rate(0, None)


class RateChanges:
    """Changes of the learning rate while the run trains. One thread may add some while others ask."""

    def __init__(self) -> None:
        self._changes: tuple[Rate, ...] = ()

    def add(self, rate: Rate) -> None:
        """Give updates that bring the run beyond so many samples this rate."""
        self._changes = (*self._changes, rate)

    def at(self, samples: int) -> Rate:
        """The rate of the update that brings the run to so many samples."""
        return next((rate for rate in reversed(self._changes) if samples > rate.samples), _AS_SET)


@dataclass(frozen=True)
class SessionRates:
    """The learning rates of a session's updates. rates: how they change meanwhile."""

    lr: float
    clock: Clock
    rates: RateChanges

    def at(self, samples: int) -> float:
        """The rate of the update that brings the run to so many samples."""
        rate = self.rates.at(samples)
        return (self.lr if rate.lr is None else rate.lr) * self.clock.factor(samples) * rate.factor


class SessionUpdating:
    """See `volary.train.update.optimizer_rule.Updating`: as a session says.

    factors: of the network. rates: how the learning rate changes meanwhile. called: the name in the network of a tensor
    that is kept.
    """

    def __init__(
        self, session: Session, factors: FactorsByName, clock: Clock, rates: RateChanges, called: Callable[[str], str]
    ) -> None:
        self._build, self.elementwise = update_rule(session, factors)
        self.clip_value, self._clock, self._rates = session.train.clip_value, clock, rates
        self._averaging, self._called = averaging_of(session, clock), called

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        return self._build(list(map(self._called, names)))

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Step with the learning rate that is due, and let the average take in what came of it."""
        rate = self._rates.at(update.samples)
        if rate.lr is not None:
            one.change_rate(rate.lr)
        one.step(self._clock.factor(update.samples) * rate.factor)
        if self._averaging is not None:
            one.average(self._averaging, update)


class BufferRule:
    """The rule of buffers: floats, as batch norm's statistics, become the mean of the contributions that carry them.

    Anything else, as counters and masks, has no mean: it becomes what one contribution carries. See
    `volary.server.update_rule.UpdateRule`.
    """

    changes_sums = False

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Take what was carried, of the parts that somebody used."""
        for part, carried in zip(values, update.sums, strict=True):
            if carried is not None and part.is_floating_point():
                torch.div(carried, update.count, out=part)
            elif carried is not None:
                part.copy_(carried)

    def state(self, number: int) -> list[PartState]:
        return []

    def restore(self, number: int, state: OptimizerState) -> None:
        pass
