"""The run's roster says what is next: contributions as servers want them, and pieces of evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

import torch

from volary.data.batch import Batch
from volary.data.order import Order, order_of
from volary.data.skipping import Skipping
from volary.data.stored import fetch
from volary.server.protocol import messages
from volary.train.coordinator import EvaluateTask, LearnTask, MicroBatch, Outcome, Task
from volary.train.not_finite import origin
from volary.train.recording.reads import Reads
from volary.train.state.seeds import seed_contribution
from volary.train.strategies.votes import not_finite

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples
    from volary.network.flow import Flow
    from volary.server.protocol.messages import Portion
    from volary.session.spec import Session
    from volary.train.recording.recorder import Recorder
    from volary.train.served.replica import ServedReplica
    from volary.train.served.work import RosterClient
    from volary.train.update.precision import Precision
    from volary.train.update.update import Update


class ByRoster:
    """See `volary.train.coordinator.Coordinator`. work: what the roster says, and hears.

    steps: updates of the whole run, if all were of whole batches. update: of this worker's own parameters.
    """

    def __init__(
        self,
        session: Session,
        *,
        work: RosterClient,
        replica: ServedReplica,
        recorder: Recorder,
        flow: Flow,
        precision: Precision,
        device: torch.device,
        samples: Samples,
        held_back: Samples | None,
        steps: int,
        update: Update,
    ) -> None:
        self._session, self._work, self._replica, self._recorder = session, work, replica, recorder
        self._flow, self._precision, self._device = flow, precision, device
        self._samples, self._held_back, self._steps, self._update = samples, held_back, steps, update
        self._order: tuple[int, Order] = (-1, torch.empty(0))
        self._reads = Reads(samples, recorder)
        self._portions: list[Portion] = []  # of the contribution at hand
        self._learn = LearnTask(iter(()), 0, 0, 0)
        self._loss, self._lost, self._wanted = 0.0, 0, True

    @property
    def outcome(self) -> Outcome:
        """How the run ended for this worker."""
        return self._work.outcome

    def __iter__(self) -> Iterator[Task]:
        """What the roster gives, until it says that the run is over."""
        self._recorder.enter("idle")
        for task in self._work:
            match task:
                case messages.Learn():
                    yield from self._contribution(task)
                case messages.EvaluatePiece():
                    yield self._evaluation(task)
                case messages.Figure():
                    self._say_figures(task)
                case messages.Rate():
                    self._update.change_rate(task.lr)
                case messages.Leave():
                    self._replica.settle()  # what is held counts
                    self._work.leave(alone=self._session.strategy.consistency.elastic)
            self._recorder.enter("idle")  # until the roster's next word
        self._reads.end_epoch(self._order[0])

    def computed(self, part: MicroBatch, loss: float) -> bool:
        """Tell the roster when the contribution's loss is known. False: others go on without it, or it is no number."""
        self._loss += loss * (len(part.inputs) / self._session.data.batch_size)
        finite, clock = isfinite(self._loss), self._learn.clock
        if part.last or not finite:
            self._work.computed(clock, self._mean(), finite=finite, lost=self._lost)
        self._wanted = not self._work.is_dropped(clock)
        if not self._wanted:
            self._replica.leave_out(self._work.oldest_ahead)
        elif not finite:
            self._leave_out(part)
        else:
            self._replica.before_backward(last=part.last)
        return self._wanted and finite

    def complete(self, task: LearnTask) -> None:
        """Let it leave, if it is wanted."""
        if not self._wanted:
            return
        if isfinite(self._loss):
            self._replica.step(self._work.oldest_ahead, self._count() - self._lost)
        step, last = task.samples // self._session.data.batch_size, self._portions[-1]
        self._recorder.end_step(
            epoch=last.epoch + last.end / len(self._samples),
            samples=self._count() - self._lost,
            loss=self._mean(),
            lr=self._update.base_lr * self._session.schedule.factor(step, self._steps),
            sent_bytes=self._replica.sent_bytes,
            received_bytes=self._replica.received_bytes,
        )

    def _contribution(self, task: messages.Learn) -> Iterator[Task]:
        self._portions = [portion for portion in task.portions if portion.start < portion.end]
        if not self._portions:
            self._work.done(task.clock)
            return
        self._recorder.go_on_from(task.clock)
        self._recorder.begin_step()
        seed_contribution(self._session.train.seed, self._recorder.rank, task.clock)
        self._loss, self._lost, self._wanted = 0.0, 0, True
        self._learn = LearnTask(self._parts(), task.clock, task.samples, task.oldest)
        yield self._learn

    def _parts(self) -> Iterator[MicroBatch]:
        local = self._session.strategy.consistency.at(0, 0.0).updates
        for portion in self._portions:
            self._recorder.enter("data")
            batch, numbers = self._batch(portion)
            parts = list(batch.to(self._device).parts(self._session.train.accumulate))
            for part in parts:
                own, numbers = numbers[: part.count], numbers[part.count :]
                ends = part is parts[-1]
                last, weight = (
                    ends and portion is self._portions[-1],
                    part.count / (batch.count if local else batch.total),
                )
                yield MicroBatch(part.inputs, part.targets, weight, last, ends and local, own.tolist().__getitem__)

    def _batch(self, portion: Portion) -> tuple[Batch, Tensor]:
        """A portion's samples, and their numbers in the data."""
        if self._order[0] != portion.epoch:
            self._reads.end_epoch(self._order[0])
            train, shuffle = self._session.train, self._session.data.shuffle
            self._order = portion.epoch, order_of(self._samples, train.seed, portion.epoch, shuffle)
        wanted = self._order[1][portion.start : portion.end]
        inputs, targets = fetch(self._samples, wanted, portion.epoch)
        lost, total = len(wanted) - len(inputs), self._session.data.batch_size
        self._lost += lost
        numbers = self._samples.readable(wanted) if isinstance(self._samples, Skipping) else wanted
        return Batch(inputs, targets, total, portion.epoch, portion.start // total, False, lost), numbers

    def _count(self) -> int:
        return sum(portion.end - portion.start for portion in self._portions)

    def _mean(self) -> float:
        """The loss, a mean over the samples of the contribution that could be read."""
        return self._loss * self._session.data.batch_size / max(1, self._count() - self._lost)

    def _leave_out(self, part: MicroBatch) -> None:
        step, rank = self._recorder.step + 1, self._recorder.rank
        if self._session.train.on_nonfinite == "stop":
            raise not_finite((rank,), step, origin(self._flow, [part], self._precision.casting))
        self._replica.leave_out(self._work.oldest_ahead)
        self._work.done(self._learn.clock)
        self._recorder.event("skipped", ranks=[rank])

    def _evaluation(self, task: messages.EvaluatePiece) -> EvaluateTask:
        """A piece of one, of a state that servers keep."""

        def measured(totals: Tensor, lost: int, _: int) -> None:
            self._work.evaluated(task, totals.flatten().tolist(), lost)

        return EvaluateTask(self._piece(task), self._replica.as_of(task.cut), measured)

    def _piece(self, task: messages.EvaluatePiece) -> Iterator[Batch]:
        assert self._held_back is not None
        size = self._session.data.batch_size
        for start in range(task.start, task.end, size):
            end = min(start + size, task.end)
            inputs, targets = self._held_back.fetch(torch.arange(start, end))
            yield Batch(inputs, targets, end - start, 0, 0, False, end - start - len(inputs))

    def _say_figures(self, task: messages.Figure) -> None:
        criterion = self._flow.criterion
        totals = torch.tensor(task.totals, dtype=torch.float64).view_as(self._flow.no_totals())
        figures = criterion.figures(totals)
        self._work.figures(task.cut, figures, figures[criterion.metric])
