"""The progress of a run: from the first portion to the end, with what is kept, measured and saved on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs, to_builtins

from volary.comm.control.errors import BadMessage
from volary.run.control.requests import ChangeRate, Request
from volary.server.batch_methods.directing import Directing
from volary.server.batch_methods.lbfgs import LbfgsCoordinator
from volary.server.membership.members import Member, Members
from volary.server.membership.outgoing import Outgoing
from volary.server.membership.replicas import Replicas
from volary.server.protocol.from_members import Computed, Done, Evaluated, Figures, Kept, PartialNorms, Products, Saved
from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.norms import ClipNorm
from volary.server.protocol.to_members import Close, Dropped, EvaluatePiece, Figure, Gone, Learn, Rate
from volary.server.protocol.updates import Closing
from volary.server.roster.batch_portions import BatchPortions
from volary.server.roster.closing import Closer, ConsistencyModel
from volary.server.roster.counters import RosterCounters
from volary.server.roster.gradient_norms import GradientNorms
from volary.server.roster.plateau import Plateau
from volary.server.roster.portions import PortionPlan, Portions, RemainingSamples
from volary.server.roster.settings import RosterSettings
from volary.server.roster.snapshots import CheckpointStore, Measure, Snapshots
from volary.server.roster.state import Outcome, RosterState
from volary.server.roster.work import NOTHING_COUNTED, Closed, WorkScheduler
from volary.sharding.epochs import Epochs

WorkReport: TypeAlias = Computed | Done | Evaluated | Figures | Saved  # what a worker sends of its work


@dataclass(frozen=True)
class RosterContext:
    """Whom the progress of a run is reported to, and what it leaves behind."""

    outgoing: Outgoing
    replicas: Replicas
    keeping: CheckpointStore
    counters: RosterCounters


class RunProgress:
    """The progress of a run whose workers all have a hello like `hello`. ending: how it is to end, once that is known.

    rate: the newest change of the learning rate, if there was one.
    """

    def __init__(
        self,
        settings: RosterSettings,
        model: ConsistencyModel,
        closer: Closer,
        hello: WorkerHello,
        state: RosterState,
        around: RosterContext,
    ) -> None:
        epochs = Epochs(hello.samples, hello.batch_size or settings.batch_size)
        per_epoch = epochs.steps
        done, length = epochs.steps_of(state.samples), settings.steps(per_epoch)
        thaw = next((step for step in settings.thaws(per_epoch) if done < step < length), None)
        self._exhausted: Outcome = "finished" if thaw is None else "thawed"
        self.plan = PortionPlan(
            epochs=epochs,
            limit=epochs.samples_of(thaw or length),
            steals=model.steals,
            epoch_share=model.epoch_share,
        )
        self._evaluate_every = settings.evaluate_every(per_epoch) if hello.validation else None
        self._checkpoint_every, self._write_every = (
            settings.checkpoint_every(per_epoch),
            settings.write_every(per_epoch),
        )
        self._patience, self._stops = settings.patience, settings.stops
        clip = None if settings.clip_norm is None else ClipNorm(settings.clip_norm)
        self.work = WorkScheduler(
            self._portions(model, settings.workers, state.left),
            closer,
            model.steps,
            state.closings,
            state.samples,
            clip,
        )
        self._metric = hello.metric, hello.higher_is_better
        self.norms = GradientNorms(around.outgoing, around.replicas)
        measure = Measure(hello.validation, settings.workers, hello.metric, hello.higher_is_better, settings.keep_best)
        self.directing: Directing | None = None
        if settings.lbfgs is not None:
            method = LbfgsCoordinator(settings.lbfgs, state.method)
            self.directing = Directing(around.outgoing, around.replicas, method, self._directed)
        self.snapshots = Snapshots(around.outgoing, around.replicas, around.keeping, measure, replace(state.best))
        self._residuals, self._of_loops = hello.residuals, state.of_loops
        self._contributions, self._numbered_before = dict(state.contributions), state.numbered_before
        self.ending: Outcome | None = None
        self._outgoing, self._counters = around.outgoing, around.counters
        self._measured_at = self._written_at = self._saved_at = state.closings
        self._final = self._save_next = False
        self._left_over = 0
        self._skip_corrupt = settings.skip_corrupt
        self._warned_lost: dict[int, int] = {}
        self._warned_empty = False
        self.rate: Rate | None = None
        self._rule = settings.plateau
        self._plateau = replace(state.plateau) if self._rule else Plateau()
        self._in_step = not model.elastic
        if self._plateau.factor != 1:
            self._change_rate(max(0, state.samples - 1))
        self._gone: list[int] = []  # workers, while something of theirs is in no update yet

    def _portions(self, model: ConsistencyModel, workers: int, left: RemainingSamples) -> Portions | BatchPortions:
        """The object that deals out the samples, of which so many are left."""
        pieces = model.pieces(workers)
        if pieces is None:
            return Portions(self.plan, left)
        return BatchPortions(self.plan, pieces, copies=model.copies, left=left)

    @property
    def steps(self) -> int:
        """Whole batches that all updates so far have learnt from."""
        return self.plan.epochs.steps_of(self.work.samples)

    @property
    def over(self) -> bool:
        """Whether the last state is measured and saved."""
        return self._final and not self.snapshots.open

    def stop(self) -> None:
        """Somebody wants the run to end after the current work."""
        self.ending = self.ending or "stopped"

    def do(self, requests: Iterable[Request]) -> None:
        """Carry out requests with the next update. What they change is saved, for a resumed run."""
        for request in requests:
            self._save_next = True
            if isinstance(request, ChangeRate):
                self._change_rate(self.work.samples, request.lr)

    def _change_rate(self, samples: int, lr: float | None = None) -> None:
        """Tell everybody the rate of updates that bring the run beyond so many samples. lr: if it is another."""
        before = self.rate.lr if self.rate else None
        self.rate = Rate(samples, before if lr is None else lr, self._plateau.factor)
        self._outgoing.to_servers(self.rate)
        self._outgoing.to_workers(self.rate)

    def save_for_loops(self, members: Members, *, elastic: bool) -> None:
        """Save the newest state, with what own loops keep beside it, if they have asked for it; then they are told.

        It is saved once all have asked who keep step (any, if `elastic`), and what they finished is in an update.
        """
        saving = {member.rank: member.saves for member in members if member.saves is not None}
        going_on = any(member.saves is None and not member.over for member in members)
        under_way = any(
            task.contribution.clock < clock for rank, clock in saving.items() for task in self.work.tasks(rank)
        )
        if saving and not under_way and (elastic or not going_on):
            for member in members:
                member.saves = None
            self._of_loops, self._saved_at = True, self.work.number
            self._begin_snapshot(list(saving), save=True)

    def loops_over(self) -> None:
        """All workers' own loops are over: so is the run, once what is done of them is in an update."""
        self.ending = self.ending or "finished"

    def take(self, rank: int, report: WorkReport, now: float) -> None:
        """A worker reports on its work. Raises BadMessage if it was given no such work."""
        match report:
            case Computed():
                self.announce(self.work.computed(rank, report, now))
            case Done():
                self.announce(self.work.done(rank, report.clock, now, report.clip))
                self._counters.waited(rank, report.waited_ms)
            case Evaluated():
                self.snapshots.evaluated(rank, report)
            case Figures():
                self._take_figures(rank, report)
            case Saved():
                self.snapshots.own_saved(rank, report)

    def again(self, rank: int, clock: int, now: float) -> None:
        """A worker learns from the same samples again. Raises BadMessage if it cannot with this contribution."""
        for learn in self.work.again(rank, clock, now):
            self._outgoing.to_worker(rank, learn)

    def take_from_server(self, number: int, report: Kept | PartialNorms | Products | Saved) -> None:
        """A server reports on updates and snapshots. Raises BadMessage if it was asked for no such thing."""
        match report:
            case Kept():
                self.snapshots.kept(number, report.snapshot)
            case PartialNorms():
                self.norms.measured(number, report)
            case Products() if self.directing is not None:
                self.directing.found(number, report)
            case Products():
                raise BadMessage(f"server {number} has found products of update {report.number}, and nobody asked")
            case Saved():
                self.snapshots.saved(number, report)

    def leave(self, rank: int, now: float) -> None:
        """A worker has gone: others do what it has not. Servers forget it once the rest is in an update."""
        self.snapshots.left(rank)
        self.announce(self.work.leave(rank, now))
        self._gone.append(rank)

    def is_busy(self, rank: int) -> bool:
        """Whether a worker has yet to do something that it was given."""
        return any(not task.done for task in self.work.tasks(rank)) or self.snapshots.wait_for(rank)

    def hand_out(self, members: Members, alone: Member | None, now: float) -> None:
        """Give work to those who ask, as far as there is some. alone: the only one that there may be something for."""
        asking = deque(members.asking() if alone is None else [alone] if alone.asks and not alone.leaves else [])
        while asking:
            member = asking.popleft()
            number, held_by = self.work.number, self.work.held_by
            if (task := self._task(member, now)) is not None:
                member.asks -= 1
                self._outgoing.to(member.peer, task)
            again = task is not None and member.asks
            if (self.work.number, self.work.held_by) != (number, held_by) or (again and held_by is None):
                asking = deque(members.asking())  # there may be something for others now
            elif again:
                asking.appendleft(member)

    def _task(self, member: Member, now: float) -> Learn | EvaluatePiece | Figure | None:
        """The next task of a worker that asks; None: nothing now, and no update waits for it."""
        if task := self.snapshots.task(member.rank):
            return task
        if self._rate_is_open(member.rank):
            return None
        if self._final or (self.ending and not self.work.behind(member.rank)):
            learn = None
        else:
            learn = self.work.begin(member.rank, now)
        if learn is None:
            self.announce(self.work.rest(member.rank, now))
            return None
        for _ in self.work.stolen(member.rank, learn.clock):
            self._counters.count("stolen", member.rank)
        if (left_over := self.work.portions.left_over) > self._left_over:
            self._outgoing.record("left_over", None, {"step": self.steps, "samples": left_over - self._left_over})
            self._left_over = left_over
        return learn

    def _rate_is_open(self, worker: int) -> bool:
        """Whether an evaluation decides the rate that the worker's next contribution is for.

        Where workers keep step all wait for it, so that a run has the same rates however long evaluations take.
        """
        every = self._evaluate_every
        if self._rule is None or not self._in_step or every is None or self.ending is not None:
            return False
        ahead = self.plan.epochs.steps_of(self.work.samples_ahead(worker))
        return self.snapshots.measuring or ahead // every > self.steps // every

    def announce(self, closed: Iterable[Closed]) -> None:
        """Tell everybody of updates, and keep the states that are due with them."""
        before = self.steps
        for each in closed:
            self._outgoing.to_servers(Close(self._asking(each)))
            if each.clip is None:
                self.norms.answer(each.asking, 0.0)  # nothing of it counted
            else:
                self.norms.begin(each.closing.number, each.clip, each.asking)
            if each.empty and not self._warned_empty:
                self._warned_empty = True
                self._outgoing.record("warning", None, {"step": self.steps, "text": NOTHING_COUNTED})
            for task in each.late:
                self._counters.count("dropped", task.contribution.worker)
                self._outgoing.to_worker(task.contribution.worker, Dropped(task.contribution.clock))
            if self._stops(before, self.steps, self.plan.epochs.steps):
                self.stop()
            self._keep_if_due(before, self.steps)
            before = self.steps

    def _asking(self, closed: Closed) -> Closing:
        """The order to servers for an update; the method that directs it, if one does, is told its part first."""
        if self.directing is None or not closed.closing.contributions:
            return closed.closing
        asks = self.directing.method.asks
        self.directing.begin(closed.closing.number, closed.loss)
        return structs.replace(closed.closing, asked=asks)

    def _directed(self, number: int) -> None:
        """The method has directed an update: so it goes on from there."""
        assert self.directing is not None
        self.snapshots.complete(number, {"method": to_builtins(self.directing.method.state())})

    def _take_figures(self, worker: int, report: Figures) -> None:
        """Take the figures of an evaluation; it may be the last."""
        self.snapshots.figures(worker, report)
        if self._rule is not None:
            metric, higher = self._metric
            if self._plateau.judge(self._rule, report.figures, metric, higher_is_better=higher):
                self._change_rate(self.work.samples)
            self.snapshots.learn_of(report.snapshot, {"plateau": self._plateau.state()})
        if self._patience is not None and self.snapshots.best.waited >= self._patience and self.ending != "stopped":
            self.ending = "finished"

    @property
    def corrupt(self) -> str:
        """Why the run cannot go on with its data; empty while it can. Says once of each epoch what it lost."""
        for epoch, lost in self.work.lost.items():
            if lost > self._skip_corrupt * self.plan.epochs.samples:
                return (
                    f"{lost} of {self.plan.epochs.samples} samples of the train part could not be read, more than "
                    f"data.skip_corrupt ({self._skip_corrupt:g} of an epoch) allows; `volary show` lists them all"
                )
            if lost and not self._warned_lost:
                self._warned_lost[epoch] = lost
                self._outgoing.record(
                    "warning",
                    None,
                    {"step": self.steps, "text": "samples that cannot be read are skipped; `volary show` lists them"},
                )
        return ""

    def end_if_over(self) -> None:
        """Keep the last state, once nothing is left to do, and let servers forget workers of which it has nothing."""
        if not self._final and self._is_last:
            self._keep()
        for rank in [rank for rank in self._gone if not self.work.tasks(rank)]:
            self._gone.remove(rank)
            self._outgoing.to_servers(Gone(rank))

    @property
    def _is_last(self) -> bool:
        """Whether there will be no update after the newest."""
        return not self.work.open and (self.ending is not None or self.work.portions.exhausted)

    def _keep_if_due(self, before: int, after: int) -> None:
        def ends(every: int | None) -> bool:
            return every is not None and after // every > before // every

        save = self._save_next or ends(self._checkpoint_every)
        self._keep(evaluate=ends(self._evaluate_every), write=ends(self._write_every), save=save)
        self._save_next = False

    def _keep(self, *, evaluate: bool = False, write: bool = False, save: bool = False) -> None:
        """Keep the newest state if something is to be done with it; the last one is measured and saved, and writes a
        text if others do, unless somebody will go on.

        What own loops keep beside it is in what they save alone: where they were stopped that is what is resumed from.
        """
        if self._is_last:
            if self.work.portions.exhausted and (self._exhausted == "finished" or self.ending is None):
                self.ending = self._exhausted
            self._final, save = True, self.ending == "finished" or not self._of_loops
            evaluate = evaluate or (self.ending == "finished" and self._evaluate_every is not None)
            write = write or (self.ending == "finished" and self._write_every is not None)
        number = self.work.number
        if self._final:
            self.snapshots.last(number)  # it may be on its way to the disk already
        known = self._saved_at == number and not self.snapshots.is_lost(number)
        evaluate, save = evaluate and self._measured_at != number, save and not known
        write = write and self._written_at != number
        if evaluate or write or save:
            self._measured_at = number if evaluate else self._measured_at
            self._written_at = number if write else self._written_at
            self._saved_at = number if save else self._saved_at
            self._begin_snapshot([], evaluate=evaluate, write=write, save=save)
            if self._final:
                self.snapshots.last(number)

    def _begin_snapshot(
        self, asking: list[int], *, evaluate: bool = False, write: bool = False, save: bool = False
    ) -> None:
        number, work = self.work.number, self.work
        state = RosterState(
            number,
            work.samples,
            work.portions.left(),
            of_loops=self._of_loops,
            contributions=[*(self._contributions | {each: clock + 1 for each, clock in work.settled.items()}).items()],
            before=self._numbered_before,
            plateau=self._plateau,
            method=self.directing.method.state() if self.directing is not None else None,
        )
        own = work.settled if self._residuals or asking else None
        self.snapshots.begin(
            number, self.steps, to_builtins(state), own, asking, evaluate=evaluate, write=write, save=save
        )
