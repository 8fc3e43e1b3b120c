"""All workers keep step: what is due when is known to each of them, and what is not they vote on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from volary.comm.groups.leading import from_leader
from volary.run.control.requests import ChangeMembers, ChangeRate
from volary.run.launch.members import GroupMembers
from volary.server.roster.plateau import plateau_rule
from volary.train.coordinator import EvaluateTask, LearnTask, MicroBatch, Outcome, SaveTask, Task
from volary.train.evaluation import buffers_of_first, over_all, record
from volary.train.recovery.pausing import MembersChange, hand_over
from volary.train.state.snapshot import RankSnapshot

if TYPE_CHECKING:
    from torch import Tensor

    from volary.run.best import Best
    from volary.session.values.period import Period
    from volary.train.coordinator import Saver
    from volary.train.growth import Growth
    from volary.train.lockstep.learning import Learning
    from volary.train.lockstep.rank import LockstepRank
    from volary.train.recording.histograms import Histograms
    from volary.train.recovery.kept_state import KeptState
    from volary.train.recovery.posted_shares import PostedShares
    from volary.train.state.stateful import RankState


@dataclass(kw_only=True)
class Lockstep:
    """See `volary.train.coordinator.Coordinator`.

    learning: makes the contributions of this rank. compare: raises RanksDiffer unless all that should be equal is so at
    a step, on all ranks; a collective call; None: nothing should be. residuals: those of this rank's codecs.
    averaged: lends the network, which has what all agree on, the average of that. histograms: looks at parameters
    before and after some steps. posted: copies of what each rank keeps alone; None: nothing has to be copied. members:
    of the run, whose ranks are the group's in this order. thawed: a stage has ended.
    """

    rank: LockstepRank
    learning: Learning
    saver: Saver
    residuals: RankState
    averaged: Callable[[], AbstractContextManager[None]]
    best: Best
    histograms: Histograms
    compare: Callable[[int], None] | None
    posted: PostedShares | None
    members: GroupMembers = field(init=False)
    outcome: Outcome = "finished"
    thawed: bool = False
    _learnt: int = 0  # contributions of this attempt
    _better: bool = False
    _change: ChangeMembers | None = None  # others follow the members that there are
    _inherited: Mapping[int, Any] = field(default_factory=dict)
    _steps: int = -1  # steps of the run before the newest contribution; -1: there was none

    def __post_init__(self) -> None:
        self.members = GroupMembers(tuple(range(self.rank.group.size)))
        if self.posted is not None:
            self.learning.before_vote = self.posted.await_all

    def __iter__(self) -> Iterator[Task]:
        """The tasks of the run from where the feed stands."""
        learning, data, recorder = self.learning, self.rank.data, self.rank.recorder
        self.outcome, ending = "finished", False
        if learning.due is not None:
            self._steps = recorder.step - (data.feed.step - learning.begun)
            ending = yield from self._due()
        while not ending and not data.feed.ended:
            if data.growth is not None and data.growth.due:  # a checkpoint may have been taken just before
                yield from self._grow(data.growth)
                if data.growth.due:  # somebody asked to end meanwhile
                    yield SaveTask(lambda: self._save(last=True))
                    self.outcome = "stopped"
                    return
            if self._change is not None:
                self._pause(self._change)
            if self.recovers:
                self._remember()
            self.histograms.begin(data.feed.step, data.steps_per_epoch)
            yield learning.task()
            self.histograms.end()
            ending = yield from self._due()
            self._prepare_save()
        self.rank.replica.finish()

    @property
    def recovers(self) -> bool:
        """Whether a contribution may have to be made again, if a worker is lost meanwhile."""
        return bool(self.rank.session.strategy.recover == "memory")

    def kept(self) -> KeptState | None:
        """Return what this rank has for those that train on, once nothing exchanges any more; None if no step has
        begun.
        """
        if self.posted is not None:
            point = self.posted.kept()
            return point and replace(point, saved=self.saver.remembered().saved, inherited=self._inherited)
        if not self.recovers or self._steps < 0:
            return None
        due, begun = self.learning.due, self.learning.begun
        done = 0 if due is None else self.rank.data.feed.step - begun
        kept = self.saver.keep(self._steps + done, due, begun)
        self.rank.replica.take_back(kept.own)
        return replace(kept, asked=self.learning.requests.done, inherited=self._inherited)

    def _remember(self, leaving: Collection[int] = ()) -> None:
        self.learning.due, self._steps = None, self.rank.recorder.step
        self.learning.requests.begin()
        if self.posted is not None:
            self.rank.replica.settle()
        self.saver.remember()
        if self.posted is not None:
            point = replace(self.saver.remembered(), asked=self.learning.requests.done, members=self.members)
            self.posted.post(point, leaving)

    def _pause(self, change: ChangeMembers) -> NoReturn:
        """Let others follow the members of this group, which all end here. Raises MembersChange on all of them."""
        rank = self.rank
        rank.replica.settle()
        self._remember(change.leaving)
        self.saver.finish()
        rank.recorder.enter("exchange")
        if self.posted is not None:
            self.posted.await_all()
        self._inherited = hand_over(self.residuals, self.members.ranks, change.leaving, rank.group)
        rank.group.bulletin.share("paused", rank.recorder.step)  # nobody ends its connections before
        raise MembersChange(change)

    def take_over(self, kept: KeptState) -> None:
        """Continue from what the ranks of a group before have kept, each its own. A collective call."""
        if self.posted is not None:
            self.posted.take_over(kept)
        if (found := self.saver.take_over(kept, shared=self.posted is not None)) is not None:
            self.learning.return_to(*found)
        self.learning.requests.skip(int(from_leader(self.rank.group.bulletin, "asked", lambda: kept.asked)))

    def computed(self, part: MicroBatch, loss: float) -> bool:
        return self.learning.computed(part, loss)

    def complete(self, task: LearnTask) -> None:
        self.learning.complete(task)

    def _due(self) -> Generator[Task, None, bool]:
        """Yield what is due after a step; the same on every rank. Returns whether training ends here."""
        rank, session, data, recorder = self.rank, self.rank.session, self.rank.data, self.rank.recorder
        begun, last = self.learning.begun, data.feed.step >= data.steps
        if self.compare is not None and (last or self._ends(session.train.compare_replicas)):
            rank.replica.settle()
            recorder.enter("exchange")
            self.compare(recorder.step)
        self._better = False
        measures, writes = (
            period.unit != "never" and (last or self._ends(period))
            for period in (session.evaluate.every, session.evaluate.text_period)
        )
        if measures or writes:
            batches, measured = (data.validation(), self._measured) if measures else ((), None)
            state, reports = self._as_saved(), writes and recorder.leads
            yield EvaluateTask(batches, state, measured, recorder.step, writes=writes, reports=reports)
        exhausted = session.evaluate.patience is not None and self.best.waited >= session.evaluate.patience
        stopping = session.train.stop_at.passes(begun, data.feed.step, data.steps_per_epoch)
        ending = last or exhausted or stopping or self.learning.agreed.ending
        self.thawed = thaws = not ending and any(begun < step <= data.feed.step for step in data.thaws_at)
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

    def _prepare_save(self) -> None:
        """After the second step, when optimisers have all their state, if a save is to come before the last step."""
        self._learnt += 1
        if self._learnt != 2:
            return
        session, data = self.rank.session, self.rank.data
        saves = [session.checkpoint.every, *([session.evaluate.every] if session.checkpoint.keep_best else [])]
        if any(period.ends_within(data.feed.step, data.steps - 1, data.steps_per_epoch) for period in saves):
            self.saver.prepare()

    def _do_what_is_asked(self) -> bool:
        """Do it; the same on every rank. Whether a checkpoint follows: a resumed run is to begin with what changed."""
        rank, requested = self.rank, False
        for request in self.learning.requests.due(self.learning.agreed.requests):
            if isinstance(request, ChangeMembers):
                if request.number == self.members.number:  # else it was of a group before; the newest counts
                    self._change = request
                continue
            requested = True
            if isinstance(request, ChangeRate):
                rank.replica.settle()
                was = rank.network.update.change_rate(request.lr)
                if rank.recorder.leads:
                    rank.recorder.event("changed", setting="optimizer.lr", was=was, now=request.lr)
        return requested

    def _ends(self, period: Period) -> bool:
        """Whether the period ended with the newest contribution, which may have been of several steps."""
        data = self.rank.data
        return period.ends_within(self.learning.begun, data.feed.step, data.steps_per_epoch)

    @contextmanager
    def _as_saved(self) -> Iterator[bool]:
        """The network as a checkpoint would have it, or the average of it: with all updates, and rank 0's buffers."""
        network, session = self.rank.network, self.rank.session
        averaged = self.averaged() if session.train.average.evaluate else nullcontext()
        with self._consensus(), buffers_of_first(network.flow.module, self.rank.group), averaged:
            yield True

    def _save(self, metric: float | None = None, *, last: bool) -> None:
        with self._consensus():
            self.saver.save(metric, last=last)

    @contextmanager
    def _consensus(self) -> Iterator[None]:
        """The parameters of all workers' one model."""
        self.rank.replica.settle()
        self.rank.recorder.enter("exchange")
        with self.rank.replica.consensus():
            yield

    def _measured(self, totals: Tensor, lost: int, count: int) -> None:
        rank, network = self.rank, self.rank.network
        rank.recorder.enter("exchange")
        totals, lost, count = over_all(totals, lost, count, rank.group)
        rank.data.corrupt.count_evaluated(lost, count)
        criterion, figures = network.flow.criterion, network.flow.figures(totals)
        self._better = record(rank.recorder, self.best, criterion, figures)
        if (rule := plateau_rule(rank.session.schedule)) is not None:
            plateau = network.update.plateau
            plateau.judge(rule, figures, criterion.metric, higher_is_better=criterion.higher_is_better)

    def _grow(self, growth: Growth) -> Iterator[Task]:
        """Choose the size of the next batches. The state stays the one before the search, which may be done anew."""
        replica, network, learning = self.rank.replica, self.rank.network, self.learning
        replica.settle()
        moment = RankSnapshot(network.flow.module, (network.update, network.precision), self.residuals)

        def restore() -> None:
            replica.settle()
            moment.restore()

        learning.trying = True
        for batch in growth.search(lambda: learning.agreed, restore):
            yield learning.task(batch)
        learning.trying = False
