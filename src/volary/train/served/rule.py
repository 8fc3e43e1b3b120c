"""The session's update rule on a server: an optimiser of each slice, its learning rate by the server's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch

from volary.data.feed import Feed
from volary.exchange._plan import laid_out_as
from volary.train.assemble import update_rule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.data._base import Samples
    from volary.server.slices import Slice
    from volary.server.vault import Update
    from volary.session.spec import Session
    from volary.train.schedules._base import Schedule
    from volary.train.served.layout import Layout

State = list[dict[str, Any]]  # of each part


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


class _Piece:
    """The optimiser of one slice. tensors: its parts, as the optimiser is given them."""

    def __init__(self, one: Slice, tensors: Sequence[Tensor], optimizer: Optimizer) -> None:
        self.tensors, self.optimizer = tensors, optimizer
        self.bounds = list(pairwise(accumulate((part.end - part.start for part in one.parts), initial=0)))
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]


class OptimizerRule:
    """See `volary.server.vault.Rule`. Slices of whole parameters are given to the optimiser in their shape."""

    changes_total = True

    def __init__(self, session: Session, layout: Layout, slices: Sequence[Slice], clock: Clock) -> None:
        self._clock, self._clip_value = clock, session.train.clip_value
        build, elementwise = update_rule(session)
        self._pieces = dict[int, _Piece]()
        for one in slices:
            if elementwise:
                tensors = [layout.values(part) for part in one.parts]
            else:
                tensors = [layout.tensors[part.parameter][1].detach() for part in one.parts]
            self._pieces[one.number] = _Piece(one, tensors, build(tensors))

    def apply(self, number: int, values: Tensor, update: Update) -> None:
        """Let the slice's optimiser take a step; parts that nobody used stay as they are."""
        piece, total = self._pieces[number], update.total
        if update.scale != 1:
            total.mul_(update.scale)
        if self._clip_value is not None:
            total.clamp_(-self._clip_value, self._clip_value)
        for place, (tensor, (start, end)) in enumerate(zip(piece.tensors, piece.bounds, strict=True)):
            tensor.data = laid_out_as(tensor, values[start:end])
            tensor.grad = laid_out_as(tensor, total[start:end]) if update.used >> place & 1 else None
        factor = self._clock.factor(update.samples)
        for group, rate in zip(piece.optimizer.param_groups, piece.rates, strict=True):
            group["lr"] = rate * factor
        piece.optimizer.step()
        for tensor in piece.tensors:
            tensor.grad = None

    def state(self, number: int) -> State:
        """Copies of what the optimiser remembers of each part."""
        piece = self._pieces[number]
        return [
            {key: _copy(entry) for key, entry in piece.optimizer.state.get(tensor, {}).items()}
            for tensor in piece.tensors
        ]

    def restore(self, number: int, state: State) -> None:
        """Go on from there."""
        piece = self._pieces[number]
        for tensor, entries in zip(piece.tensors, state, strict=True):
            if entries:
                piece.optimizer.state[tensor] = {key: _copy(entry) for key, entry in entries.items()}


class BufferRule:
    """Of buffers: floats, as batch norm's statistics, become the mean of the contributions that carry them.

    Of anything else, as counters and masks, no mean can be had: it becomes what one contribution carries.
    """

    changes_total = False

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._bounds = {
            one.number: list(pairwise(accumulate((part.end - part.start for part in one.parts), initial=0)))
            for one in slices
        }

    def apply(self, number: int, values: Tensor, update: Update) -> None:
        """Take what was carried, of the parts that somebody used."""
        for place, (start, end) in enumerate(self._bounds[number]):
            if update.used >> place & 1 and values.is_floating_point():
                torch.div(update.total[start:end], update.count, out=values[start:end])
            elif update.used >> place & 1:
                values[start:end] = update.total[start:end]

    def state(self, number: int) -> State:
        """Nothing."""
        return [{} for _ in self._bounds[number]]

    def restore(self, number: int, state: State) -> None:
        """Nothing."""


def _copy(entry: Any) -> Any:
    return entry.clone() if isinstance(entry, torch.Tensor) else entry
