"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from volary.errors import TargetError
from volary.train.evaluation import measure, record
from volary.train.moment import Moment
from volary.train.not_finite import origin
from volary.train.replicas import compare_replicas
from volary.train.votes import not_finite

if TYPE_CHECKING:
    import torch

    from volary.data.batch import Batch
    from volary.data.feed import Feed
    from volary.network.flow import Flow
    from volary.run.best import Best
    from volary.session.period import Period
    from volary.session.spec import Session
    from volary.train.bulletin import Bulletin
    from volary.train.checkpoint import Owing, Saver
    from volary.train.corrupt import Corrupt
    from volary.train.growth import Growth
    from volary.train.precision import Precision
    from volary.train.recorder import Recorder
    from volary.train.strategy import Strategy
    from volary.train.update import Update
    from volary.train.votes import Agreed

Outcome = Literal["finished", "stopped", "left"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything that one worker trains with.

    evaluating: the second flow, on the same module. held_back: makes this rank's batches for it. growth: lets batches
    grow, if they may. corrupt: counts samples that cannot be read. owing: what this rank owes to the sums. bulletin: of
    this life. steps: the run's length and that of an epoch, as the feed counts them. asked_to_end: whether this worker
    was asked to end after its step.
    """

    session: Session
    rank: int
    world_size: int
    device: torch.device
    flow: Flow
    evaluating: Flow
    feed: Feed
    growth: Growth | None
    held_back: Callable[[], Iterator[Batch]]
    precision: Precision
    update: Update
    strategy: Strategy
    recorder: Recorder
    saver: Saver
    owing: Owing
    bulletin: Bulletin
    corrupt: Corrupt
    best: Best
    steps: int
    steps_per_epoch: int
    asked_to_end: Callable[[], bool]


def train(it: Training) -> Outcome:
    """Train until the last step, an early stop, or the wish to end. Raises NotFinite, RanksDiffer, PeerLost."""
    if not _grow(it):  # a checkpoint may have been taken just before
        return "stopped"
    it.recorder.begin_step()
    for batch in it.feed:  # goes on where the checkpoint stopped
        agreed = _learn(it, batch)
        it.corrupt.count(batch, agreed)
        _update(it, agreed, batch)
        _end_step(it, batch, agreed)
        if (outcome := _between_steps(it, agreed)) is not None:
            return outcome
        if not _grow(it):
            return "stopped"
        it.recorder.begin_step()
    return "finished"


def _learn(it: Training, batch: Batch) -> Agreed:
    """Forward and backward of this rank's share, and what all ranks agree on."""
    enter, share = it.recorder.enter, 0.0
    # a share without samples has no gradients: zeros would decay parameters that nobody uses
    parts = list(batch.to(it.device).parts(it.session.train.accumulate)) if batch.count else []
    for number, part in enumerate(parts, start=1):
        enter("forward")
        try:
            with it.precision.casting():
                loss = it.flow(part.inputs, part.targets)  # a layer waits only for its own parameters
        except TargetError as error:
            raise error.of(it.feed.number(error.place + sum(before.count for before in parts[: number - 1]))) from None
        share += loss.item() * part.weight
        if number == len(parts):
            it.strategy.vote(share, busy=True, ending=it.asked_to_end(), lost=batch.lost)
        enter("backward")
        it.precision.backward(loss, part.weight)  # a bucket leaves the moment its gradients exist
    if not parts:
        it.strategy.vote(share, busy=False, ending=it.asked_to_end(), lost=batch.lost)
    agreed = it.strategy.agree()
    return replace(agreed, loss=agreed.loss * agreed.scale(batch.total))


def _update(it: Training, agreed: Agreed, batch: Batch) -> None:
    if not agreed.not_finite:
        _apply(it, agreed, batch)
        return
    if it.session.train.on_nonfinite == "stop":
        raise not_finite(agreed.not_finite, it.recorder.step + 1, _origin(it, agreed, batch), it.saver.newest)
    it.strategy.leave_out()
    if it.rank == 0:  # all ranks leave it out
        it.recorder.event("skipped", ranks=list(agreed.not_finite))


def _apply(it: Training, agreed: Agreed, batch: Batch) -> None:
    if agreed.lost < batch.total:
        it.strategy.apply(agreed.scale(batch.total))  # parameters change as their sums arrive
    else:
        it.strategy.leave_out()  # nothing of the batch could be read


def _origin(it: Training, agreed: Agreed, batch: Batch) -> str:
    """Where the loss of the first such rank became what it is, the same on all ranks: that rank looks."""
    looks = agreed.not_finite[0]
    if it.rank == looks:
        it.recorder.enter("forward")
        parts = batch.to(it.device).parts(it.session.train.accumulate)
        it.bulletin.post("not finite", origin(it.flow, parts, it.precision.casting))
    it.recorder.enter("exchange")
    return str(it.bulletin.read("not finite", looks))


def _end_step(it: Training, batch: Batch, agreed: Agreed) -> None:
    it.recorder.end_step(
        epoch=batch.epoch + (batch.step_in_epoch + 1) / it.steps_per_epoch,
        samples=batch.count,
        loss=agreed.loss,
        lr=it.update.lr,
        sent_bytes=it.strategy.sent_bytes,
        received_bytes=it.strategy.received_bytes,
    )


def _between_steps(it: Training, agreed: Agreed) -> Outcome | None:
    """What is due after a step; the same on every rank. Returns how training ends, if it ends here."""
    session, last = it.session, it.feed.step >= it.steps
    equal = it.world_size > 1 and session.strategy.exchange.equal
    if equal and (last or _ends(it, session.train.compare_replicas)):
        it.strategy.settle()
        it.recorder.enter("exchange")
        compare_replicas(it.flow.module, it.recorder.step, it.world_size)
    better = False
    if session.evaluate.every.unit != "never" and (last or _ends(it, session.evaluate.every)):
        better = _evaluate(it)
    exhausted = session.evaluate.patience is not None and it.best.waited >= session.evaluate.patience
    ending = last or exhausted or agreed.ending
    if ending or _ends(it, session.checkpoint.every) or (better and session.checkpoint.keep_best):
        it.strategy.settle()
        it.saver.save(it.best.value if better else None, last=ending)
    if last or exhausted:
        return "finished"
    return "stopped" if agreed.ending else None


def _ends(it: Training, period: Period) -> bool:
    """Whether the period ended with the newest batch, which may have been several steps at once."""
    return period.ends_within(it.feed.begun, it.feed.step, it.steps_per_epoch)


def _grow(it: Training) -> bool:
    """Choose the size of the next batches, if that is due. False: somebody asked to end meanwhile; the state is saved.

    The state is the one before the search, which a resumed run does anew.
    """
    if it.growth is None or not it.growth.due:
        return True
    it.strategy.settle()
    moment = Moment(it.flow.module, (it.update,), it.owing)

    def attempt(batch: Batch) -> Agreed:
        agreed = _learn(it, batch)
        if agreed.not_finite:
            it.strategy.leave_out()
        else:
            _apply(it, agreed, batch)
        return agreed

    def come_back() -> None:
        it.strategy.settle()
        moment.come_back()

    chosen = it.growth.search(attempt, come_back)
    if not chosen:
        it.saver.save(None, last=True)
    return chosen


def _evaluate(it: Training) -> bool:
    it.strategy.settle()
    figures = measure(
        it.evaluating, it.held_back(), it.device, it.world_size, it.recorder.enter, it.corrupt.count_evaluated
    )
    return record(it.recorder, it.best, it.evaluating.criterion, figures, first_rank=it.rank == 0)
