"""The run's roster says what is next: contributions as servers want them, and pieces of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import TYPE_CHECKING

import torch

from volary.consistency._base import Push
from volary.data.batching.batch import Batch
from volary.data.reader import SamplePlaces
from volary.data.sample_reader import SampleReader
from volary.server.protocol.from_members import Leave
from volary.server.protocol.to_members import EvaluatePiece, Figure, Learn, Rate
from volary.server.protocol.updates import Portion
from volary.train.agreement.votes import not_finite
from volary.train.coordinator import EvaluateTask, LearnTask, MicroBatch, Outcome, Task
from volary.train.not_finite import origin
from volary.train.recording.reads import tell_dropped
from volary.train.replica import record_step
from volary.train.state.seeds import seed_contribution

if TYPE_CHECKING:
    from torch import Tensor

    from volary.consistency._base import Consistency
    from volary.data.samples import Samples
    from volary.network.flow import Flow
    from volary.server.protocol.norms import ClipNorm
    from volary.sharding.epochs import Epochs
    from volary.train.recording.histograms import Histograms
    from volary.train.recording.recorder import Recorder
    from volary.train.served.portions import PortionReader
    from volary.train.served.replica import ServedReplica
    from volary.train.served.roster_client import RosterClient


@dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """How a worker learns from the portions that the roster gives it.

    epochs: of all workers. replica: the number of this worker's, whose workers draw the same random numbers; leads: it
    speaks for them. leaves: it may go without others, if the model can do without it. seed: of each contribution's
    random numbers; None: the loop is the user's, who draws their own, and goes through it also where a batch has no
    sample for this worker. skips: a loss that is no number is left out, and does not end the run. lr: the learning
    rate, given the samples that the run learns from before; change_rate: called with a change of it. rates: sends it to
    the servers.
    """

    consistency: Consistency
    epochs: Epochs
    seed: int | None
    lr: Callable[[int], float]
    change_rate: Callable[[Rate], object] = lambda _: None  # a loop of one's own is asked for no other
    rates: Callable[[], tuple[float, ...]] = tuple
    skips: bool = False
    replica: int = 0
    leads: bool = True
    leaves: bool = True


@dataclass(frozen=True)
class SessionFlow:
    """A session's network, on its training and validation data. validation: None: it is not evaluated.

    called: what to call a training sample.
    """

    flow: Flow
    casting: Callable[[], AbstractContextManager[object]]
    validation: Samples | None
    called: Callable[[int], str]


class ByRoster:
    """See `volary.train.coordinator.Coordinator`. work: what the roster says, and hears.

    session: where the loop is not the user's. portion: that the newest part is of. histograms: looks at
    parameters as some contributions are computed with them, and the next ones.
    """

    portion: Portion

    def __init__(
        self,
        settings: LearningSettings,
        *,
        work: RosterClient,
        replica: ServedReplica,
        recorder: Recorder,
        reader: PortionReader,
        histograms: Histograms | None = None,
        session: SessionFlow | None = None,
    ) -> None:
        self._histograms, self._session = histograms, session
        self._settings, self._work, self._replica, self._recorder = settings, work, replica, recorder
        self._reader = reader
        self._portions: list[Portion] = []  # of the contribution at hand
        self._unread: list[Portion] = []  # of these
        self._learn = LearnTask(iter(()), 0, 0, 0)
        self._loss, self._lost, self._counted, self._wanted, self._loss_known = 0.0, 0, 0.0, True, True
        self._empty = False  # nothing of the contribution at hand is this worker's
        self._reported = False  # the roster knows that it is computed
        self._again = False  # the next task learns from the same samples
        consistency = settings.consistency
        # the loop has not said whether it clips: the first contribution waits for that, and others as the one before
        self.may_clip = settings.seed is None and consistency.has_common_step and consistency.pushes is Push.GRADIENT
        self._carried: int | None = None  # samples of contributions before it whose gradients leave with it

    @property
    def outcome(self) -> Outcome:
        """How the run ended for this worker."""
        return self._work.outcome

    @property
    def coming_epoch(self) -> int | None:
        """The epoch of the contribution's next portion, which is not read yet; None: all are."""
        return self._unread[0].epoch if self._unread else None

    @property
    def within(self) -> bool:
        """Whether some portions of the contribution at hand are read, and others are not."""
        return 0 < len(self._unread) < len(self._portions)

    @property
    def part_of_batch(self) -> float:
        """This worker's samples of the newest part's batch, by those of all workers."""
        portion = self.portion
        return (portion.end - portion.start) / len(self._settings.epochs.batch_at(portion.start))

    def __iter__(self) -> Iterator[Task]:
        """Yield the tasks that the roster gives, until it says that the run is over."""
        self._recorder.enter("idle")
        for task in self._work:
            match task:
                case Learn():
                    yield from self._contribution(task)
                case EvaluatePiece():
                    yield self._evaluation(task)
                case Figure():
                    self._say_figures(task)
                case Rate():
                    self._settings.change_rate(task)
                case Leave():
                    self._replica.settle()  # what is held counts
                    self._work.leave(alone=self._settings.leaves and self._settings.consistency.elastic)
            self._recorder.enter("idle")  # until the roster's next word
        self._reader.close()

    @property
    def ends_epoch(self) -> bool:
        """Whether the newest part is of an epoch's last batch."""
        epochs = self._settings.epochs
        return epochs.batch_at(self.portion.start).stop == epochs.samples

    @property
    def batch_size(self) -> int:
        """Samples of a full batch of all workers."""
        return self._settings.epochs.batch_size

    def weighed(self, part: MicroBatch, counted: float, weight: float | None = None) -> MicroBatch:
        """The part, of whose loss the loop says that it is a mean over `counted`. weight: of gradients, if another."""
        return replace(part, counted=counted, weight=counted / self.batch_size if weight is None else weight)

    def computed(self, part: MicroBatch, loss: float | None) -> bool:
        """Tell the roster when the contribution's loss is known. False: others go on without it, or it is no number.

        None: nobody knows it, in a user's own loop. There a part is the last if gradients leave with its backward.
        """
        self._expect(self._unread)  # now the roster has had the time of a forward pass to say what comes next
        self._replica.computed(loss or 0.0)
        self._loss_known = self._loss_known and loss is not None
        self._counted += part.counted
        self._loss += (loss or 0.0) * (part.counted / self.batch_size)
        finite, clock = isfinite(self._loss), self._learn.clock
        if part.last or not finite:
            self._say_computed(finite=finite)
        self._wanted = not self._work.is_dropped(clock)
        if not self._wanted:
            self._replica.leave_out()
        elif self._empty and self._carried is None:
            self._replica.leave_out()
            return False
        elif not finite:
            self._leave_out(part)
        else:
            self._replica.before_backward(last=part.last, counted=self._worth)
        return self._wanted and finite

    def again(self) -> None:
        """Learn from the contribution's samples once more: the next task has parameters with its update, and no parts.

        A user's own loop calls it, where each contribution is of one part, and all workers do.
        """
        self._again = True
        self._work.again(self._learn.clock + 1)

    def passes_again(self) -> None:
        """A backward pass of the part at hand is the last, after others of it: gradients leave with it."""
        self._say_computed(finite=True)
        if self._wanted and (self._carried is not None or not self._empty):
            self._replica.before_backward(last=True, counted=self._worth)

    def postpone(self, task: LearnTask) -> None:
        """The contribution is no update: what is computed of it leaves with a later one."""
        self._counted = 0.0
        self._say_computed(finite=False, waits=False)
        if self._carried is not None or not self._empty:
            self._carried = (self._carried or 0) + self._count() - self._lost
        self._replica.postpone(self._oldest_next)
        self._work.done(task.clock)

    def complete(self, task: LearnTask, clip: ClipNorm | None = None) -> None:
        """Let it leave, if it is wanted. clip: its update by the norm of its gradient, if it `may_clip`."""
        if not self._reported:  # a user's own step, of fewer passes than announced
            self._say_computed(finite=True)
        self._work.decide(task.clock, clip)
        self.may_clip = clip is not None
        carried, self._carried = self._carried, None
        if self._empty and carried is None:
            self._replica.forget(self._oldest_next)
            self._work.done(task.clock)
            return
        if not self._wanted or not isfinite(self._loss):
            self._replica.forget(self._oldest_next)
        if not self._wanted:
            return
        if isfinite(self._loss):
            self._replica.step(self._oldest_next, self._counted / self.batch_size)
        last = self._portions[-1]
        record_step(
            self._recorder,
            self._replica,
            epoch=last.epoch + last.end / self._settings.epochs.samples,
            samples=self._count() - self._lost + (carried or 0) if self._settings.leads else 0,
            loss=self._mean() if self._loss_known and self._counted else nan,
            lr=self._settings.lr(task.samples),
        )

    def cut_short(self) -> None:
        """A user's own loop ends within the contribution at hand: what it has learnt of it counts."""
        if not self.within:
            return
        self._portions = self._portions[: -len(self._unread)]
        self._unread = []
        self._no_part_is_left()
        self.complete(self._learn)

    @property
    def _worth(self) -> float:
        """Count what leaves with the contribution at hand, so far."""
        return self._counted or float(self._carried is not None)

    @property
    def _oldest_next(self) -> int:
        """The least update that parameters must hold which are read from now on, as far as it is known.

        What a user's own loop reads between two steps has all updates, if workers make each of them together.
        """
        together = self._settings.seed is None and not self._settings.consistency.elastic
        return max(self._work.oldest_ahead, self._learn.clock + 1 if together else 0)

    def _no_part_is_left(self) -> None:
        """Say that all of the contribution is computed, though none of its parts was the last."""
        self._say_computed(finite=True)
        self._wanted = not self._work.is_dropped(self._learn.clock)
        if not self._wanted:
            self._replica.leave_out()

    def _say_computed(self, *, finite: bool, waits: bool = True) -> None:
        clock, rates = self._learn.clock, self._settings.rates()
        self._reported = True
        self._work.computed(
            clock,
            self._mean(),
            finite=finite,
            lost=self._lost,
            rates=rates,
            counted=self._counted,
            waits=waits and self.may_clip,
            carries=self._carried is not None,
        )

    def _contribution(self, task: Learn) -> Iterator[Task]:
        own_loop = self._settings.seed is None
        again, self._again = self._again, False
        if again:
            self._portions = [Portion(one.number, one.epoch, one.end, one.end) for one in self._portions]
            self._carried = None if self._empty else 0
        else:
            self._portions = [portion for portion in task.portions if own_loop or portion.start < portion.end]
            self._empty = all(portion.start == portion.end for portion in self._portions)
        if not self._portions:
            self._work.done(task.clock)
            return
        self._recorder.go_on_from(task.clock)
        self._recorder.begin_step()
        if self._settings.seed is not None:
            seed_contribution(self._settings.seed, self._settings.replica, task.clock)
        self._loss, self._lost, self._counted, self._wanted, self._loss_known = 0.0, 0, 0.0, True, True
        self._unread, self._reported = [] if again else self._portions, False
        self._learn = LearnTask(iter(()) if again else self._parts(), task.clock, task.samples, task.oldest)
        yield self._learn

    def _parts(self) -> Iterator[MicroBatch]:
        local, own_loop = self._settings.consistency.at(0, 0.0).updates, self._settings.seed is None
        if self._histograms is not None:
            self._histograms.end()  # of the contribution before: what has changed since is here
            self._histograms.begin(self._learn.clock, self._settings.epochs.steps)
        for place, portion in enumerate(self._portions):
            self._recorder.enter("data")
            self._expect(self._portions[place:])
            self.portion, self._unread = portion, self._portions[place + 1 :]
            read = self._reader.read(_places(portion))
            self._lost += read.lost
            # where nothing counts there are no gradients: zeros would move parameters that nobody uses
            parts = read.parts if own_loop else [part for part in read.parts if part.counted]
            counted = sum(part.counted for part in parts)
            divisor = (counted or 1.0) if local else self.batch_size
            for part in parts:
                ends = part is parts[-1]
                last, updates = ends and portion is self._portions[-1], ends and local and counted > 0
                yield replace(part, weight=part.counted / divisor, last=last, updates=updates)
        if not (own_loop or self._reported):
            self._no_part_is_left()
            if self._wanted:
                self._replica.before_backward(last=True, counted=self._counted)

    def _expect(self, portions: list[Portion]) -> None:
        """Have these portions of the contribution read next, and then those of the one after it."""
        self._reader.expect([_places(one) for one in (*portions, *self._work.ahead(self._learn.clock))])

    def _count(self) -> int:
        return sum(portion.end - portion.start for portion in self._portions)

    def _mean(self) -> float:
        """The loss, a mean over what counts of the contribution so far; 0 if nothing does."""
        return self._loss * self.batch_size / (self._counted or 1.0)

    def _leave_out(self, part: MicroBatch) -> None:
        step, rank = self._recorder.step + 1, self._recorder.rank
        if not self._settings.skips:
            session, parts = self._session, [(part, part.number)]
            where = "" if session is None else origin(session.flow, parts, session.casting, session.called)
            raise not_finite((rank,), step, where)
        self._replica.leave_out()
        self._work.done(self._learn.clock)
        self._recorder.event("skipped", ranks=[rank])

    def _evaluation(self, task: EvaluatePiece) -> EvaluateTask:
        """A piece of one, of a state that servers keep."""

        def measured(totals: Tensor, lost: int, _: int) -> None:
            self._work.evaluated(task, totals.flatten().tolist(), lost)

        state, leads = self._replica.as_of(task.snapshot), self._settings.leads
        batches = self._piece(task) if task.start < task.end else ()
        return EvaluateTask(batches, state, measured, task.step, writes=task.writes, reports=task.writes and leads)

    def _piece(self, task: EvaluatePiece) -> Iterator[Batch]:
        assert self._session is not None
        assert self._session.validation is not None
        size = self.batch_size
        reader = SampleReader(self._session.validation, size)
        coming = [SamplePlaces(0, start, min(start + size, task.end)) for start in range(task.start, task.end, size)]
        for number, places in enumerate(coming):
            reader.expect(coming[number:])
            inputs, targets, lost = reader.read(places)
            yield Batch(inputs, targets, len(places.range), 0, 0, False, lost, reader.scale)
        tell_dropped(self._session.validation, "test", self._recorder)

    def _say_figures(self, task: Figure) -> None:
        assert self._session is not None
        flow = self._session.flow
        totals = torch.tensor(task.totals, dtype=torch.float64).view_as(flow.no_totals())
        figures = flow.figures(totals)
        self._work.figures(task.snapshot, figures, figures[flow.criterion.metric])


def _places(portion: Portion) -> SamplePlaces:
    return SamplePlaces(portion.epoch, portion.start, portion.end)
