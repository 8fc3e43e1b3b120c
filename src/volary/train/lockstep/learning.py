"""A contribution in lock step: which batches it is learnt from, and what all ranks agree to do with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import isfinite, nan
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.errors import PeerLost
from volary.server.roster.work import NOTHING_COUNTED
from volary.train.agreement.votes import Vote, not_finite
from volary.train.coordinator import LearnTask, MicroBatch
from volary.train.data.micro_batches import micro_batches, waiting
from volary.train.lockstep.tally import ContributionTally
from volary.train.not_finite import origin
from volary.train.replica import record_step

if TYPE_CHECKING:
    from volary.consistency._base import Consistency
    from volary.data.batching.batch import Batch
    from volary.train.agreement.votes import Agreed
    from volary.train.coordinator import Saver
    from volary.train.lockstep.rank import LockstepRank
    from volary.train.member.requests import RunRequests


@dataclass(kw_only=True)
class Learning:
    """Makes contributions of a rank's batches, and has all ranks agree on each.

    consistency: bsp for a worker alone. requests: what the run is asked to do, and whether this worker is to end after
    its step. trying: a size for batches is tried, and nothing of it stays. due: what was agreed on a contribution, from
    its update on until the next one begins. agreed: on the newest contribution. begun: the feed's step before that.
    before_vote: what has to be waited for before a vote, which lets all update; None: nothing.
    """

    rank: LockstepRank
    consistency: Consistency
    requests: RunRequests
    saver: Saver
    before_vote: Callable[[], None] | None = None
    trying: bool = False
    due: Agreed | None = None
    agreed: Agreed = field(init=False)
    begun: int = 0
    _batch: Batch = field(init=False)  # the newest
    _tally: ContributionTally = field(init=False)  # of the newest contribution
    _own: tuple[float, float] = 0.0, 1.0  # of the newest batch: what counts of this worker's share, and the divisor
    _warned_empty: bool = False
    _step_s: float = 0.0  # what all workers took for a step, in the mean
    _sample_s: float = 0.0  # what this worker computed for a sample of the newest step; 0: it had none

    def task(self, batch: Batch | None = None) -> LearnTask:
        """The next contribution: of a `batch`, or else of as many of the feed's as the consistency model says."""
        feed = self.rank.data.feed
        self._tally, self.begun = ContributionTally(), feed.step
        return LearnTask(self._parts(batch), feed.step, feed.given, feed.step)

    def return_to(self, due: Agreed, begun: int) -> None:
        """The newest contribution was updated with, and what follows an update is still to be done."""
        self.due = self.agreed = due
        self.begun = begun

    def computed(self, part: MicroBatch, loss: float) -> bool:
        """Count a part and its loss; return whether backward is to run, before which the last part votes.

        A loss that is not finite needs it, too, as all ranks sum all gradients; but not if this worker would update its
        own parameters with it, and with nobody else.
        """
        self._tally.add(part, loss)
        if part.updates:
            self._vote_own()
        if part.last:
            self._vote()
        return isfinite(loss) or not self._tally.locally or self.rank.in_groups

    def complete(self, task: LearnTask) -> None:
        """Agree with the others on what to do with the contribution, and do it. Raises NotFinite, PeerLost."""
        rank, tally = self.rank, self._tally
        for _ in task.parts:  # all workers read equally many batches, also one whose loss is no number
            pass
        if not tally.voted:
            self._vote()
        agreed = rank.replica.agree()
        scale = agreed.scale(tally.divisor)
        self.agreed = agreed = replace(agreed, loss=agreed.loss * scale)
        self._step_s = agreed.step_s
        if not self.trying:
            rank.data.count(self._batch, agreed)
        if agreed.not_finite:
            self._leave_out(agreed)
        elif not agreed.counted:
            self._tell_empty()
            self.due = agreed
            rank.replica.leave_out()
        else:
            self.due = agreed
            rank.replica.apply(scale)  # parameters change as their sums arrive
        if not self.trying:
            self._end_step(agreed.loss if agreed.counted else nan)

    def _parts(self, batch: Batch | None) -> Iterator[MicroBatch]:
        """This worker's share of the `batch`, or else of as many of the feed's as make a contribution."""
        group, data = self.rank.group, self.rank.data
        for number in count():
            action = self.consistency.at(number, self._step_s, self.begun)
            if not self.trying:
                self.rank.recorder.begin_step()
            if number and group.is_cut:
                raise PeerLost("a worker is lost, without which nothing comes of this contribution")
            self._batch = own = next(data.feed) if batch is None else batch
            parts = self._counting(own)
            counted = sum(part.counted for part in parts)
            self._tally.begin(own, counted, counted if group.size == 1 else own.total, action)
            ends = action.push is not Push.NOTHING or own.ends_epoch or data.feed.ended or batch is not None
            locally = action.updates and not self.rank.in_groups
            divisor = counted if locally or group.size == 1 else own.total
            self._own = counted, divisor
            data.streams.begin(own)
            for part in parts:
                last, weight = part is parts[-1], part.counted / divisor
                yield replace(part, weight=weight, last=last and ends, updates=last and action.updates)
            if action.updates and self.rank.in_groups and not parts:
                self._vote_own()
                self.rank.replica.update()
            data.streams.end(own)
            if ends:
                return
            known = self._tally.own_loss if counted else None
            self._end_step(nan if known is None else known * divisor / counted)

    def _counting(self, own: Batch) -> list[MicroBatch]:
        """The parts of this worker's share in which something counts; their weights are not known yet.

        One in which nothing does has no gradients: zeros would decay parameters that nobody uses.
        """
        network, number = self.rank.network, self.rank.data.feed.number
        pieces = self.rank.session.train.accumulate
        parts = micro_batches(own, pieces, network, number)
        if network.flow.absent is None:
            return [part for part in parts if part.counted]
        none = own.inputs[:0], own.targets[:0], 0, 0.0
        return [*parts, *(waiting(*none, number) for _ in range(pieces - len(parts)))]  # as many as others run

    def _vote_own(self) -> None:
        """Say what the others of this rank's group have to know of the batch, if they update one replica with it."""
        counted, divisor = self._own
        loss = (self._tally.own_loss or 0.0) if counted else 0.0
        self.rank.replica.vote_own(Vote(loss, busy=counted > 0, ending=False, counted=counted), divisor)

    def _vote(self) -> None:
        if self.before_vote is not None:
            with self.rank.recorder.waiting():
                self.before_vote()
        ending, posted = self.requests.ending(), self.requests.posted()
        self.rank.replica.vote(self._tally.vote(ending=ending, requests=posted, sample_s=self._sample_s))

    def _tell_empty(self) -> None:
        """Warn that nothing of the contribution counted; once, and not if nothing of it could be read."""
        recorder = self.rank.recorder
        if not self._warned_empty and self.agreed.lost < self._batch.total and recorder.leads:
            self._warned_empty = True
            recorder.event("warning", text=NOTHING_COUNTED)

    def _leave_out(self, agreed: Agreed) -> None:
        rank, recorder = self.rank, self.rank.recorder
        if rank.session.train.on_nonfinite == "stop" and not self.trying:
            raise not_finite(agreed.not_finite, recorder.step + 1, self._origin(agreed), self.saver.newest)
        self.due = agreed
        rank.replica.leave_out()
        if recorder.leads and not self.trying:  # all ranks leave it out
            recorder.event("skipped", ranks=list(agreed.not_finite))

    def _origin(self, agreed: Agreed) -> str:
        """Where the loss of the first such rank became what it is, the same on all ranks: that rank looks."""
        rank, group, recorder = self.rank, self.rank.group, self.rank.recorder
        if not rank.alone:
            return ""
        looks = agreed.not_finite[0]
        if group.rank == looks:
            recorder.enter("forward")
            network, feed = rank.network, rank.data.feed
            parts = micro_batches(self._batch, rank.session.train.accumulate, network, feed.number)
            numbered = [(part, part.number) for part in parts]
            where = origin(network.flow, numbered, network.precision.casting, feed.called)
            group.bulletin.post("not finite", where)
        recorder.enter("exchange")
        return str(group.bulletin.read("not finite", looks))

    def _end_step(self, loss: float) -> None:
        rank, batch = self.rank, self._batch
        record_step(
            rank.recorder,
            rank.replica,
            epoch=batch.epoch + (batch.step_in_epoch + 1) / rank.data.steps_per_epoch,
            samples=batch.count if rank.counts else 0,
            loss=loss,
            lr=rank.network.update.lr,
        )
        self._sample_s = rank.recorder.busy_s / batch.count if batch.count else 0.0
