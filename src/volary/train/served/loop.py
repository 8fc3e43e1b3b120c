"""The training loop of a served run: the roster says what is next, servers update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.data.batch import Batch
from volary.data.order import epoch_order
from volary.server.messages import Evaluate, Figure, Learn, Leave
from volary.train.not_finite import origin
from volary.train.seeds import seed_contribution
from volary.train.votes import not_finite

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data._base import Samples
    from volary.network.flow import Flow
    from volary.server.messages import Portion
    from volary.session.spec import Session
    from volary.train.loop import Outcome
    from volary.train.precision import Precision
    from volary.train.recorder import Recorder
    from volary.train.served.replica import Replica
    from volary.train.served.work import Work


@dataclass(frozen=True, kw_only=True)
class Served:
    """Everything that one worker trains with. evaluating: the second flow, on the same module.

    steps: updates of the whole run, if all were of whole batches. base_lr: of the optimiser, before the schedule.
    """

    session: Session
    device: torch.device
    flow: Flow
    evaluating: Flow
    samples: Learning
    held_back: Samples | None
    precision: Precision
    replica: Replica
    recorder: Recorder
    work: Work
    steps: int
    base_lr: float


def train(it: Served) -> Outcome:
    """Do what the roster asks for until it says that the run is over. Raises NotFinite, PeerLost."""
    it.recorder.enter("idle")
    for task in it.work:
        match task:
            case Learn():
                _learn(it, task)
            case Evaluate():
                _evaluate(it, task)
            case Figure():
                _say_figures(it, task)
            case Leave():
                it.replica.settle()  # what is held counts
                it.work.leave(alone=it.session.strategy.consistency.elastic)
        it.recorder.enter("idle")  # until the roster's next word
    return it.work.outcome


def _learn(it: Served, task: Learn) -> None:
    """Forward and backward of a contribution's portions, and its end."""
    portions = [portion for portion in task.portions if portion.start < portion.end]
    if not portions:
        it.work.done(task.clock)
        return
    it.recorder.go_on_from(task.clock)
    it.recorder.begin_step()
    it.replica.begin(task)
    seed_contribution(it.session.train.seed, it.recorder.rank, task.clock)
    share = 0.0
    for part, last in it.samples.parts(it, portions):
        it.recorder.enter("forward")
        with it.precision.casting():
            loss = it.flow(part.inputs, part.targets)  # a layer waits only for its own parameters
        share += loss.item() * part.weight
        if last or not math.isfinite(share):
            there = max(1, _count(portions) - it.samples.lost)
            it.work.computed(task.clock, share * part.total / there, finite=math.isfinite(share), lost=it.samples.lost)
        if it.work.is_dropped(task.clock):
            it.replica.leave_out(it.work.oldest_ahead)
            return
        if not math.isfinite(share):
            _leave_out(it, task, part)
            break
        it.replica.before_backward(last=last)
        it.recorder.enter("backward")
        it.precision.backward(loss, part.weight)  # a chunk leaves the moment its gradients exist
    else:
        it.replica.step(it.work.oldest_ahead)
    there = max(1, _count(portions) - it.samples.lost)
    _end_step(it, task, portions, share * it.session.data.batch_size / there)


def _leave_out(it: Served, task: Learn, part: Batch) -> None:
    step, rank = it.recorder.step + 1, it.recorder.rank
    if it.session.train.on_nonfinite == "stop":
        raise not_finite((rank,), step, origin(it.flow, [part], it.precision.casting))
    it.replica.leave_out(it.work.oldest_ahead)
    it.work.done(task.clock)
    it.recorder.event("skipped", ranks=[rank])


def _end_step(it: Served, task: Learn, portions: list[Portion], loss: float) -> None:
    step = task.samples // it.session.data.batch_size
    it.recorder.end_step(
        epoch=portions[-1].epoch + portions[-1].end / len(it.samples.samples),
        samples=_count(portions) - it.samples.lost,
        loss=loss,
        lr=it.base_lr * it.session.schedule.factor(step, it.steps),
        sent_bytes=it.replica.sent_bytes,
        received_bytes=it.replica.received_bytes,
    )


def _count(portions: list[Portion]) -> int:
    return sum(portion.end - portion.start for portion in portions)


def _evaluate(it: Served, task: Evaluate) -> None:
    """A piece of an evaluation, of a state that servers keep."""
    totals, size, lost = it.evaluating.no_totals(it.device), it.session.data.batch_size, 0
    assert it.held_back is not None
    with it.replica.as_of(task.cut) as kept:
        if not kept:  # the roster has given it up
            return
        for start in range(task.start, task.end, size):
            it.recorder.enter("evaluate")
            inputs, targets = it.held_back.fetch(torch.arange(start, min(start + size, task.end)))
            lost += min(start + size, task.end) - start - len(inputs)
            totals += it.evaluating.measure(inputs.to(it.device), targets.to(it.device))
    it.work.evaluated(task, totals.flatten().tolist(), lost)


def _say_figures(it: Served, task: Figure) -> None:
    totals = torch.tensor(task.totals, dtype=torch.float64).view_as(it.evaluating.no_totals())
    figures = it.evaluating.figures(totals)
    it.work.figures(task.cut, figures, figures[it.evaluating.criterion.metric])


class Learning:
    """The samples that are learnt from, by portions of an epoch's order. lost: of a contribution, could not be read."""

    def __init__(self, samples: Samples, session: Session) -> None:
        self.samples, self._seed, self._shuffle = samples, session.train.seed, session.data.shuffle
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))
        self.lost = 0

    def parts(self, it: Served, portions: list[Portion]) -> Iterator[tuple[Batch, bool]]:
        """What passes through the network at once, and whether it is the last of a contribution."""
        self.lost = 0
        for portion in portions:
            it.recorder.enter("data")
            batch = self._batch(portion, it.session.data.batch_size).to(it.device)
            parts = list(batch.parts(it.session.train.accumulate))
            for part in parts:
                yield part, portion is portions[-1] and part is parts[-1]

    def _batch(self, portion: Portion, total: int) -> Batch:
        if self._order[0] != portion.epoch:
            order = epoch_order(len(self.samples), self._seed, portion.epoch, self._shuffle)
            self._order = portion.epoch, order
        inputs, targets = self.samples.fetch(self._order[1][portion.start : portion.end])
        lost = portion.end - portion.start - len(inputs)
        self.lost += lost
        return Batch(inputs, targets, total, portion.epoch, portion.start // total, False, lost)
