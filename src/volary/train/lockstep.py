"""All workers keep step: what is due when is known to each of them, and what is not they vote on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from math import isfinite, nan
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.run.control.requests import ChangeRate
from volary.server.roster.plateau import plateau_rule
from volary.server.roster.work import NOTHING_COUNTED
from volary.train.agreement.votes import Vote, not_finite
from volary.train.coordinator import EvaluateTask, LearnTask, MicroBatch, Outcome, SaveTask, Task
from volary.train.data.micro_batches import micro_batches, waiting
from volary.train.evaluation import buffers_of_first, over_all, record
from volary.train.not_finite import origin
from volary.train.replica import record_step
from volary.train.state.snapshot import RankSnapshot

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.consistency._base import Action, Consistency
    from volary.data.batching.batch import Batch
    from volary.run.best import Best
    from volary.session.spec import Session
    from volary.session.values.period import Period
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import Saver
    from volary.train.data.rank_data import RankData
    from volary.train.growth import Growth
    from volary.train.member.requests import RunRequests
    from volary.train.model import TrainedNetwork
    from volary.train.recording.histograms import Histograms
    from volary.train.recording.recorder import Recorder
    from volary.train.recovery.kept_state import KeptState
    from volary.train.replica import Voting
    from volary.train.state.stateful import RankState


@dataclass
class Learnt:
    """Counts what a contribution was learnt from so far. samples, lost and counted: this worker's.

    counted: what losses are means over, in samples. divisor: of what travels, the same on all workers: all their
    samples, as nobody knows yet how much of those counts; a worker alone knows. locally: this worker updates its own
    parameters meanwhile. own_loss: of the newest batch, the mean over this worker's share of it, or that share's part
    in the mean over all workers.
    """

    batches: int = 0
    samples: int = 0
    lost: int = 0
    counted: float = 0.0
    divisor: float = 0.0
    locally: bool = False
    own_loss: float = 0.0
    voted: bool = False
    _newest: float = 0.0  # counted in this worker's share of the newest batch
    _sum: float = 0.0  # of losses, over what counted in the batches before
    _began_s: float = field(default_factory=time.perf_counter)

    def begin(self, batch: Batch, counted: float, divisor: float, action: Action) -> None:
        """Count a batch that was read: its samples, those of them that could not be read, and what of it counts."""
        self._sum += self.own_loss * self._newest
        self.batches, self.samples, self.lost = self.batches + 1, self.samples + batch.count, self.lost + batch.lost
        self.counted, self.divisor = self.counted + counted, self.divisor + divisor
        self._newest, self.own_loss, self.locally = counted, 0.0, action.updates

    def add(self, part: MicroBatch, loss: float) -> None:
        """Add the loss of one micro-batch, with its weight in the batch."""
        self.own_loss += loss * part.weight

    def vote(self, *, ending: bool, requests: int) -> Vote:
        """This worker's part of what all agree on."""
        self.voted = True
        divisor = self.divisor or 1.0  # alone, and nothing counts
        loss = (self._sum + self.own_loss * self._newest) / divisor if self.locally else self.own_loss
        return Vote(
            loss,
            busy=self.counted > 0,
            ending=ending,
            lost=self.lost,
            step_s=(time.perf_counter() - self._began_s) / self.batches,
            weight=self.counted / divisor,
            requests=requests,
            counted=self.counted,
        )


@dataclass(kw_only=True)
class Lockstep:
    """See `volary.train.coordinator.Coordinator`.

    consistency: bsp for a worker alone. counts: this worker records its samples and losses; of those that learn from
    the same samples one does. alone: this worker runs the network without others. group: who have the same parameters,
    and samples of their own. compare: raises RanksDiffer unless all that should be equal is so at a step, on all ranks;
    a collective call; None: nothing should be. requests: what the run is asked to do, and whether this worker is to end
    after its step. thawed: a stage has ended. residuals: those of this rank's codecs.
    averaged: lends the network, which has what all agree on, the average of that. histograms: looks at parameters
    before and after some steps. due: what was agreed in a step, from its update on until the next one begins.
    """

    session: Session
    counts: bool
    alone: bool
    group: Group
    compare: Callable[[int], None] | None
    data: RankData
    network: TrainedNetwork
    replica: Voting
    recorder: Recorder
    saver: Saver
    residuals: RankState
    consistency: Consistency
    best: Best
    requests: RunRequests
    averaged: Callable[[], AbstractContextManager[None]]
    histograms: Histograms
    due: Agreed | None = None
    outcome: Outcome = "finished"
    thawed: bool = False
    _batch: Batch = field(init=False)  # the newest
    _agreed: Agreed = field(init=False)  # on the newest contribution
    _learnt: Learnt = field(init=False)  # what the newest contribution is of
    _trying: bool = False  # a size for batches: nothing of it stays
    _better: bool = False
    _told_empty: bool = False
    _begun: int = 0  # the feed's step before the newest contribution
    _steps: int = -1  # steps of the run before it; -1: there was none
    _step_s: float = 0.0  # what all workers took for a step, in the mean

    def __iter__(self) -> Iterator[Task]:
        """The tasks of the run from where the feed stands."""
        self.outcome, ending = "finished", False
        if self.due is not None:
            self._agreed, self._begun, self._steps = self.due, self.data.feed.step - 1, self.recorder.step - 1
            ending = yield from self._due()
        while not ending and not self.data.feed.ended:
            if self.data.growth is not None and self.data.growth.due:  # a checkpoint may have been taken just before
                yield from self._grow(self.data.growth)
                if self.data.growth.due:  # somebody asked to end meanwhile
                    yield SaveTask(lambda: self._save(last=True))
                    self.outcome = "stopped"
                    return
            if self.recovers:
                self.due, self._steps = None, self.recorder.step
                self.saver.remember()
            self.histograms.begin(self.data.feed.step, self.data.steps_per_epoch)
            yield self._learn(self.data.feed.step)
            self.histograms.end()
            ending = yield from self._due()
        self.replica.finish()

    @property
    def recovers(self) -> bool:
        """Whether a step may have to be done again, if a worker is lost in it."""
        return bool(self.session.strategy.recover == "memory")

    def kept(self) -> KeptState | None:
        """What this rank has for those that train on, once nothing exchanges any more; None if no step has begun."""
        if not self.recovers or self._steps < 0:
            return None
        return self.saver.keep(self._steps + (self.due is not None), self.due)

    def computed(self, part: MicroBatch, loss: float) -> bool:
        """Count a part and its loss; return whether backward is to run, before which the last part votes.

        A loss that is not finite needs it, too, as all ranks sum all gradients; but not if this worker would update its
        own parameters with it.
        """
        self._learnt.add(part, loss)
        if part.last:
            self._vote()
        return isfinite(loss) or not self._learnt.locally

    def complete(self, task: LearnTask) -> None:
        """Agree with the others on what to do with the contribution, and let that happen."""
        learnt = self._learnt
        for _ in task.parts:  # all workers read equally many batches, also one whose loss is no number
            pass
        if not learnt.voted:
            self._vote()
        agreed = self.replica.agree()
        scale = agreed.scale(learnt.divisor)
        self._agreed = agreed = replace(agreed, loss=agreed.loss * scale)
        self._step_s = agreed.step_s
        if not self._trying:
            self.data.count(self._batch, agreed)
        if agreed.not_finite:
            self._leave_out(agreed)
        elif not agreed.counted:
            self._tell_empty()
            self.due = agreed
            self.replica.leave_out()
        else:
            self.due = agreed
            self.replica.apply(scale)  # parameters change as their sums arrive
        if not self._trying:
            self._end_step(agreed.loss if agreed.counted else nan)

    def _learn(self, clock: int, batch: Batch | None = None) -> LearnTask:
        self._learnt = Learnt()
        self._begun = self.data.feed.step
        return LearnTask(self._parts(batch), clock, self.data.feed.given, clock)

    def _parts(self, batch: Batch | None) -> Iterator[MicroBatch]:
        """This worker's share of the `batch`, or else of as many of the feed's as make a contribution."""
        for number in count():
            action = self.consistency.at(number, self._step_s, self._begun)
            if not self._trying:
                self.recorder.begin_step()
            self._batch = own = next(self.data.feed) if batch is None else batch
            parts = self._counting(own)
            counted = sum(part.counted for part in parts)
            self._learnt.begin(own, counted, counted if self.group.size == 1 else own.total, action)
            ends = action.push is not Push.NOTHING or own.ends_epoch or self.data.feed.ended or batch is not None
            divisor = counted if action.updates or self.group.size == 1 else own.total
            self.data.streams.begin(own)
            for part in parts:
                last, weight = part is parts[-1], part.counted / divisor
                yield replace(part, weight=weight, last=last and ends, updates=last and action.updates)
            self.data.streams.end(own)
            if ends:
                return
            self._end_step(self._learnt.own_loss if counted else nan)

    def _counting(self, own: Batch) -> list[MicroBatch]:
        """The parts of this worker's share in which something counts; their weights are not known yet.

        One in which nothing does has no gradients: zeros would decay parameters that nobody uses.
        """
        pieces, number = self.session.train.accumulate, self.data.feed.number
        parts = micro_batches(own, pieces, self.network, number)
        if self.network.flow.absent is None:
            return [part for part in parts if part.counted]
        none = own.inputs[:0], own.targets[:0], 0, 0.0
        return [*parts, *(waiting(*none, number) for _ in range(pieces - len(parts)))]  # as many as others run

    def _vote(self) -> None:
        self.replica.vote(self._learnt.vote(ending=self.requests.ending(), requests=self.requests.posted()))

    def _tell_empty(self) -> None:
        """Nothing of the contribution counted; it is said once, unless nothing of it could be read."""
        if not self._told_empty and self._agreed.lost < self._batch.total and self.recorder.leads:
            self._told_empty = True
            self.recorder.event("warning", text=NOTHING_COUNTED)

    def _leave_out(self, agreed: Agreed) -> None:
        if self.session.train.on_nonfinite == "stop" and not self._trying:
            raise not_finite(agreed.not_finite, self.recorder.step + 1, self._origin(agreed), self.saver.newest)
        self.due = agreed
        self.replica.leave_out()
        if self.recorder.leads and not self._trying:  # all ranks leave it out
            self.recorder.event("skipped", ranks=list(agreed.not_finite))

    def _origin(self, agreed: Agreed) -> str:
        """Where the loss of the first such rank became what it is, the same on all ranks: that rank looks."""
        if not self.alone:
            return ""
        looks = agreed.not_finite[0]
        if self.group.rank == looks:
            self.recorder.enter("forward")
            parts = micro_batches(self._batch, self.session.train.accumulate, self.network, self.data.feed.number)
            numbered = [(part, part.number) for part in parts]
            where = origin(self.network.flow, numbered, self.network.precision.casting, self.data.feed.called)
            self.group.bulletin.post("not finite", where)
        self.recorder.enter("exchange")
        return str(self.group.bulletin.read("not finite", looks))

    def _end_step(self, loss: float) -> None:
        batch = self._batch
        record_step(
            self.recorder,
            self.replica,
            epoch=batch.epoch + (batch.step_in_epoch + 1) / self.data.steps_per_epoch,
            samples=batch.count if self.counts else 0,
            loss=loss,
            lr=self.network.update.lr,
        )

    def _due(self) -> Generator[Task, None, bool]:
        """What is due after a step; the same on every rank. Returns whether training ends here."""
        session, last = self.session, self.data.feed.step >= self.data.steps
        if self.compare is not None and (last or self._ends(session.train.compare_replicas)):
            self.replica.settle()
            self.recorder.enter("exchange")
            self.compare(self.recorder.step)
        self._better = False
        if session.evaluate.every.unit != "never" and (last or self._ends(session.evaluate.every)):
            step, leads = self.recorder.step, self.recorder.leads
            yield EvaluateTask(self.data.validation(), self._as_saved(), self._measured, step, writes=True, tells=leads)
        exhausted = session.evaluate.patience is not None and self.best.waited >= session.evaluate.patience
        data = self.data
        stopping = session.train.stop_at.passes(self._begun, data.feed.step, data.steps_per_epoch)
        ending = last or exhausted or stopping or self._agreed.ending
        self.thawed = thaws = not ending and any(
            self._begun < step <= self.data.feed.step for step in self.data.thaws_at
        )
        requested = self._do_what_is_asked()
        if (
            requested
            or ending
            or thaws
            or self._ends(session.checkpoint.every)
            or (self._better and session.checkpoint.keep_best)
        ):
            yield SaveTask(lambda: self._save(self.best.value if self._better else None, last=ending or thaws))
        if ending and not (last or exhausted):
            self.outcome = "stopped"
        return ending or thaws

    def _do_what_is_asked(self) -> bool:
        """Do it; the same on every rank. Whether a checkpoint follows: a resumed run is to begin with what changed."""
        requested = False
        for request in self.requests.due(self._agreed.requests):
            requested = True
            if isinstance(request, ChangeRate):
                self.replica.settle()
                was = self.network.update.change_rate(request.lr)
                if self.recorder.leads:
                    self.recorder.event("changed", setting="optimizer.lr", was=was, now=request.lr)
        return requested

    def _ends(self, period: Period) -> bool:
        """Whether the period ended with the newest contribution, which may have been of several steps."""
        return period.ends_within(self._begun, self.data.feed.step, self.data.steps_per_epoch)

    @contextmanager
    def _as_saved(self) -> Iterator[bool]:
        """The network as a checkpoint would have it, or the average of it: with all updates, and rank 0's buffers."""
        averaged = self.averaged() if self.session.train.average.evaluate else nullcontext()
        with self._consensus(), buffers_of_first(self.network.flow.module, self.group), averaged:
            yield True

    def _save(self, metric: float | None = None, *, last: bool) -> None:
        with self._consensus():
            self.saver.save(metric, last=last)

    @contextmanager
    def _consensus(self) -> Iterator[None]:
        """The parameters of all workers' one model."""
        self.replica.settle()
        self.recorder.enter("exchange")
        with self.replica.consensus():
            yield

    def _measured(self, totals: Tensor, lost: int, count: int) -> None:
        self.recorder.enter("exchange")
        totals, lost, count = over_all(totals, lost, count, self.group)
        self.data.corrupt.count_evaluated(lost, count)
        criterion, figures = self.network.flow.criterion, self.network.flow.figures(totals)
        self._better = record(self.recorder, self.best, criterion, figures)
        if (rule := plateau_rule(self.session.schedule)) is not None:
            plateau = self.network.update.plateau
            plateau.judge(rule, figures, criterion.metric, higher_is_better=criterion.higher_is_better)

    def _grow(self, growth: Growth) -> Iterator[Task]:
        """Choose the size of the next batches. The state stays the one before the search, which may be done anew."""
        self.replica.settle()
        network = self.network
        moment = RankSnapshot(network.flow.module, (network.update, network.precision), self.residuals)

        def come_back() -> None:
            self.replica.settle()
            moment.come_back()

        self._trying = True
        for batch in growth.search(lambda: self._agreed, come_back):
            yield self._learn(self.data.feed.step, batch)
        self._trying = False
