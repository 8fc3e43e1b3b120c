"""The progress of a run: from the first portion to the end, with what is kept, measured and saved on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import Struct, field, to_builtins

from volary.run.best import Best
from volary.server.protocol.messages import Close, Dropped, EvaluatePiece, Figure, Figures, Learn, WorkerHello
from volary.server.protocol.norms import ClipNorm
from volary.server.roster.closing import Closer, ConsistencyModel
from volary.server.roster.counters import RosterCounters
from volary.server.roster.gradient_norms import GradientNorms
from volary.server.roster.keeping import CheckpointStore, Measure, Snapshots
from volary.server.roster.members import Member
from volary.server.roster.outgoing import Outgoing
from volary.server.roster.portions import PortionPlan, Portions, RemainingSamples, samples_of
from volary.server.roster.replicas import Replicas
from volary.server.roster.work import NOTHING_COUNTED, Closed, WorkScheduler

Outcome = Literal["finished", "stopped"]


@dataclass(frozen=True, kw_only=True)
class RosterSettings:
    """What a session says of a run over servers.

    workers, servers: that it begins with. replicas: servers that keep each shard. give_up_after_s: of a server's
    silence, after which it is lost. batch_size: samples of a global batch. steps: the run's length, given the steps of
    an epoch. evaluate_every, checkpoint_every: in steps, given those of an epoch; None: never. patience: evaluations in
    a row without a better one after which the run ends early. skip_corrupt: share of an epoch's samples that may be
    lost, as they cannot be read. clip_norm: the largest norm of an update's gradient; None: any.
    """

    workers: int
    servers: int
    replicas: int
    give_up_after_s: float
    batch_size: int
    steps: Callable[[int], int]
    evaluate_every: Callable[[int], int | None]
    checkpoint_every: Callable[[int], int | None]
    patience: int | None = None
    skip_corrupt: float = 1.0
    keep_best: bool = True
    clip_norm: float | None = None


class RosterState(Struct, frozen=True):
    """What a checkpoint keeps of a roster. closings, samples: so far. of_loops: workers' own loops save the run.

    contributions: of each worker, how many it had numbered. before: those of all others: the steps without servers.
    """

    closings: int = 0
    samples: int = 0
    left: RemainingSamples = RemainingSamples()
    best: Best = field(default_factory=Best)
    of_loops: bool = False
    contributions: list[tuple[int, int]] = []
    before: int = 0

    @property
    def numbered_before(self) -> int:
        """`before`, also of a checkpoint that does not say what each worker had numbered."""
        return self.before if self.contributions else self.closings


@dataclass(frozen=True)
class RosterContext:
    """Whom the progress of a run is reported to, and what it leaves behind."""

    outgoing: Outgoing
    replicas: Replicas
    keeping: CheckpointStore
    counters: RosterCounters


class RunProgress:
    """Of a run whose workers all look like `hello`. ending: how it is to end, once that is known."""

    def __init__(
        self,
        terms: RosterSettings,
        model: ConsistencyModel,
        closer: Closer,
        hello: WorkerHello,
        state: RosterState,
        around: RosterContext,
    ) -> None:
        batch_size = hello.batch_size or terms.batch_size
        per_epoch = -(-hello.samples // batch_size)
        self.plan = PortionPlan(
            samples=hello.samples,
            batch_size=batch_size,
            limit=samples_of(terms.steps(per_epoch), hello.samples, batch_size),
            steals=model.steals,
            epoch_share=model.epoch_share,
        )
        self._evaluate_every = terms.evaluate_every(per_epoch) if hello.held_back else None
        self._checkpoint_every = terms.checkpoint_every(per_epoch)
        self._patience = terms.patience
        clip = None if terms.clip_norm is None else ClipNorm(terms.clip_norm)
        self.work = WorkScheduler(
            Portions(self.plan, state.left), closer, model.steps, state.closings, state.samples, clip
        )
        self.norms = GradientNorms(around.outgoing, around.replicas)
        measure = Measure(hello.held_back, terms.workers, hello.metric, hello.higher_is_better, terms.keep_best)
        self.snapshots = Snapshots(around.outgoing, around.replicas, around.keeping, measure, replace(state.best))
        self._residuals, self._of_loops = hello.residuals, state.of_loops
        self._contributions, self._numbered_before = dict(state.contributions), state.numbered_before
        self.ending: Outcome | None = None
        self._outgoing, self._counters = around.outgoing, around.counters
        self._measured_at = self._saved_at = state.closings
        self._final = self._save_next = False
        self._left_over = 0
        self._skip_corrupt = terms.skip_corrupt
        self._told_lost: dict[int, int] = {}
        self._told_empty = False

    @property
    def steps(self) -> int:
        """Whole batches that all updates so far have learnt from."""
        return self.plan.steps(self.work.samples)

    @property
    def over(self) -> bool:
        """Whether the last state is measured and saved."""
        return self._final and not self.snapshots.open

    def stop(self) -> None:
        """Somebody wants the run to end after the current work."""
        self.ending = self.ending or "stopped"

    def save_soon(self) -> None:
        """Save the state as of the next update, whichever is due otherwise."""
        self._save_next = True

    def save_for_loops(self, asking: list[int]) -> None:
        """Save the newest state, with what the own loops of these workers keep beside it; then they are told."""
        self._of_loops, self._saved_at = True, self.work.number
        self._begin_snapshot(asking, evaluate=False, save=True)

    def loops_over(self) -> None:
        """All workers' own loops are over: so is the run, once what is done of them is in an update."""
        self.ending = self.ending or "finished"

    def task(self, member: Member, now: float) -> Learn | EvaluatePiece | Figure | None:
        """What a worker that asks is to do next; None: nothing now, and no update waits for it."""
        if task := self.snapshots.task(member.rank):
            return task
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
            self._outgoing.said("left_over", None, {"step": self.steps, "samples": left_over - self._left_over})
            self._left_over = left_over
        return learn

    def announce(self, closed: Iterable[Closed]) -> None:
        """Tell everybody of updates, and keep the states that are due with them."""
        before = self.steps
        for each in closed:
            self._outgoing.to_servers(Close(each.closing))
            if each.clip is None:
                self.norms.answer(each.asking, 0.0)  # nothing of it counted
            else:
                self.norms.begin(each.closing.number, each.clip, each.asking)
            if each.empty and not self._told_empty:
                self._told_empty = True
                self._outgoing.said("warning", None, {"step": self.steps, "text": NOTHING_COUNTED})
            for task in each.late:
                self._counters.count("dropped", task.contribution.worker)
                self._outgoing.to_worker(task.contribution.worker, Dropped(task.contribution.clock))
            self._keep_if_due(before, self.steps)
            before = self.steps

    def figures(self, worker: int, said: Figures) -> None:
        """What an evaluation means; it may be the last. Raises BadMessage if it was not asked for."""
        self.snapshots.figures(worker, said)
        if self._patience is not None and self.snapshots.best.waited >= self._patience:
            self.ending = self.ending or "finished"

    @property
    def corrupt(self) -> str:
        """Why the run cannot go on with its data; empty while it can. Says once of each epoch what it lost."""
        for epoch, lost in self.work.lost.items():
            if lost > self._skip_corrupt * self.plan.samples:
                return (
                    f"{lost} of {self.plan.samples} samples of the train part could not be read, more than "
                    f"data.skip_corrupt ({self._skip_corrupt:g} of an epoch) allows; `volary show` lists them all"
                )
            if lost and not self._told_lost:
                self._told_lost[epoch] = lost
                self._outgoing.said(
                    "warning",
                    None,
                    {"step": self.steps, "text": "samples that cannot be read are skipped; `volary show` lists them"},
                )
        return ""

    def end_if_over(self) -> None:
        """Keep the last state, once nothing is left to do."""
        if not self._final and self._is_last:
            self._keep(evaluate=False, save=False)

    @property
    def _is_last(self) -> bool:
        """Whether there will be no update after the newest."""
        return not self.work.open and (self.ending is not None or self.work.portions.exhausted)

    def _keep_if_due(self, before: int, after: int) -> None:
        def ends(every: int | None) -> bool:
            return every is not None and after // every > before // every

        self._keep(evaluate=ends(self._evaluate_every), save=self._save_next or ends(self._checkpoint_every))
        self._save_next = False

    def _keep(self, *, evaluate: bool, save: bool) -> None:
        """Keep the newest state if it is to be measured or saved; the last one is both, unless somebody will go on.

        What own loops keep beside it is in what they save alone: where they were stopped that is what is resumed from.
        """
        if self._is_last:
            self.ending = "finished" if self.work.portions.exhausted else self.ending
            self._final, save = True, self.ending == "finished" or not self._of_loops
            evaluate = evaluate or (self.ending == "finished" and self._evaluate_every is not None)
        number = self.work.number
        if self._final:
            self.snapshots.last(number)  # it may be on its way to the disk already
        known = self._saved_at == number and not self.snapshots.is_lost(number)
        evaluate, save = evaluate and self._measured_at != number, save and not known
        if evaluate or save:
            self._measured_at = number if evaluate else self._measured_at
            self._saved_at = number if save else self._saved_at
            self._begin_snapshot([], evaluate=evaluate, save=save)
            if self._final:
                self.snapshots.last(number)

    def _begin_snapshot(self, asking: list[int], *, evaluate: bool, save: bool) -> None:
        number, work = self.work.number, self.work
        state = RosterState(
            number,
            work.samples,
            work.portions.left(),
            of_loops=self._of_loops,
            contributions=[*(self._contributions | {each: clock + 1 for each, clock in work.settled.items()}).items()],
            before=self._numbered_before,
        )
        own = work.settled if self._residuals or asking else None
        self.snapshots.begin(number, self.steps, to_builtins(state), own, asking, evaluate=evaluate, save=save)
