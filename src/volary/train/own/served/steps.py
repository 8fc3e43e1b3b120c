"""The steps of a user's own loop over servers: which batch is at hand, and what of it is done."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from volary.consistency._base import Push
from volary.errors import BadInput, SettingError, Stopped
from volary.train.own.first_steps import FirstSteps
from volary.train.own.gradients.losses import StepLoss, loss_of_backward
from volary.train.own.served.turns import OptimizerTurns
from volary.train.update.held_parameters import ids_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager, ExitStack

    from torch import Tensor
    from torch.optim import Optimizer

    from volary.consistency._base import Consistency
    from volary.server.protocol.norms import ClipNorm
    from volary.train.coordinator import LearnTask, MicroBatch, Outcome
    from volary.train.own.model.share import Weighed
    from volary.train.own.served.model import ServedModel
    from volary.train.own.served.turns import Distributing
    from volary.train.recording.recorder import Recorder
    from volary.train.served.by_roster import ByRoster
    from volary.train.served.replica import ServedReplica
    from volary.train.served.roster_client import RosterClient

NEEDED = "exchange=server needs worker.distribute(model, optimizer) and a loop over worker.feed(data)"


class ServedSteps:
    """The steps of a loop, from the first batch to the end; see `HookedSteps`. held: closed with `close`.

    A batch is at hand from when it is given out until the next one is. What is not computed of it by then counts as
    computed, without gradients. Servers make one update per batch, once all optimisers have stepped, and another one
    for each turn in which the loop learns from it again; with several passes, one update per as many batches, and all
    gradients leave with the last of them.
    """

    def __init__(
        self,
        held: ExitStack,
        work: RosterClient,
        recorder: Recorder,
        replica: ServedReplica,
        coordinator: ByRoster,
        consistency: Consistency,
        how: Distributing,
    ) -> None:
        self._held, self._work, self._recorder = held, work, recorder
        self._replica, self._coordinator = replica, coordinator
        self._tasks: Iterator[Any] = iter(coordinator)
        self._elastic, self._local = consistency.elastic, consistency.pushes is Push.DIFFERENCE
        self._around = not consistency.equal  # a centre
        self._task: LearnTask | None = None
        self._parts: Iterator[MicroBatch] = iter(())
        self._now: MicroBatch | None = None  # at hand
        self._how = how
        self._computed = self._left = self._ended = self._ends_epoch = False  # left: what is computed of the batch has
        self._turns = OptimizerTurns(how.optimizers)
        self._repeats, self._waits = how.repeats(consistency), how.waits(consistency)
        self._weighed: float | None = None  # what counts of it
        self._part_of_all: Weighed | None = None  # that as a part of what counts of it on all workers
        self._backward = -1  # the newest, by autograd's number
        self._passed = 0  # backward passes whose gradients have not left
        self._finished = 0  # the clock of the next contribution
        self._lent = False  # the model has its average
        self._first = FirstSteps(recorder)
        self._loss = StepLoss(None if how.summed else recorder)

    @property
    def weight(self) -> float:
        """The factor of gradients that backward makes now."""
        return 1.0 if self._now is None else self._now.weight

    @property
    def outcome(self) -> Outcome:
        """How the run has ended for this worker, once it has."""
        return self._work.outcome

    @property
    def part_of_batch(self) -> float:
        """This worker's samples of the newest batch, by those of all workers."""
        return self._coordinator.part_of_batch

    @property
    def updates(self) -> bool:
        """Whether the step at hand changes this worker's own parameters."""
        return self._local and self._now is not None and self._now.counted > 0

    @property
    def own_copy(self) -> str:
        """Say what a worker's parameters are now if not a model of all workers, and what to do; else return ""."""
        if self._around:
            return (
                "is this worker's own copy, near the centre; accepted: worker.evaluate and the run's checkpoint, which "
                "have that"
            )
        if not (self._local and self._coordinator.within):
            return ""
        return (
            "is this worker's own copy: other workers have others, within a period of local; accepted: the run's "
            "checkpoint, which servers write at its end"
        )

    def epoch(self, first: int) -> Iterator[Any]:
        """The batches of this worker up to the end of the epoch that is under way. Raises Stopped when the run ends.

        first: that is under way at least; -1: nobody knows.
        """
        epoch = first
        while True:
            if self._ends_epoch and self._passes > 1 and 0 < self._passed < self._passes:
                self._ends_epoch = False
                self._recorder.enter("between steps")
                return  # before the batch is passed on: the step of what is left may follow the loop over batches
            self._refuse_lent("a batch was taken")
            self._pass_on()
            if (ahead := self._coming()) is None:
                raise Stopped("the run was asked to end")
            if -1 < epoch < ahead:
                self._recorder.enter("between steps")
                return
            epoch = max(epoch, ahead)
            self._now = part = self._in_step(next(self._parts))
            self._computed, self._left, self._weighed, self._part_of_all = False, False, None, None
            self._ends_epoch = self._coordinator.ends_epoch
            self._turns.begin_batch()
            self._recorder.enter("forward")
            self._first.begin(fed=True)
            yield part.inputs

    @property
    def samples(self) -> int:
        """How many the batch at hand has."""
        return 0 if self._now is None else self._now.count

    @property
    def weighed(self) -> float | None:
        """How much of the batch at hand counts; None: its samples."""
        return self._weighed

    def weigh(self, count: float, of_all: Callable[[float], Weighed]) -> None:
        """The loss of the batch at hand divides by `count`. Raises BadInput without a batch, or within its step.

        of_all: adds up the counts of all workers, where gradients of several batches are added up before servers have
        them; else the roster does.
        """
        if self._now is None or (self._computed and not self._turns.begun):
            raise BadInput("worker.weigh without a batch, or after its backward; accepted with exchange=server: before")
        self.entering()
        self._weighed = count if self._now.count else 0.0
        if self._how.summed:
            return
        if self._passes > 1:
            self._part_of_all = of_all(self._weighed)
        else:
            self._now = self._coordinator.weighed(self._now, self._weighed)

    def in_backward(self, number: int) -> None:
        """Backward `number` comes to a model. Raises BadInput without a batch, SettingError for another turn of it."""
        self._refuse_lent("backward() was called")
        if self._now is None:
            raise BadInput(f"backward without a batch; {NEEDED}")
        if number == self._backward:  # it has begun before
            return
        if self._turns.begun or self._left:
            self._begin_again()
        if self._waits:
            self._turns.weigh_waiting(self.weight)
        self._backward, self._passed = number, self._passed + 1
        last = self._now.last and self._passed >= self._passes and not self._waits
        if not self._computed:
            loss = loss_of_backward()
            if loss is not None:
                self._loss.judge(loss, self._now.count)
            self._compute(None if loss is None else loss.item(), last=last)
        elif last and self._passes > 1:
            self._coordinator.passes_again()
        self._recorder.enter("backward")

    def _compute(self, loss: float | None, *, last: bool) -> None:
        assert self._now is not None
        self._computed = True
        if self._part_of_all is not None:
            weight, self._part_of_all = self._part_of_all.weight, None
            self._now = self._coordinator.weighed(self._now, weight * self._coordinator.batch_size, weight)
        self._coordinator.computed(replace(self._now, last=last), loss if loss is not None and isfinite(loss) else None)

    def entering(self) -> None:
        """A forward begins: it is computed with what optimisers have done since the last one."""
        if self._turns.begun and not self._left and self._repeats:
            self._complete()

    def _begin_again(self) -> None:
        """Another turn of the batch at hand begins. Raises Stopped if the run ends, SettingError."""
        if not self._repeats:
            raise SettingError(
                "backward() was called after optimizer.step() of the same batch, and servers make one update of it; "
                "accepted with exchange=server: all backward passes of a batch before its optimisers' steps, or "
                "consistency=bsp with passes=1, or exchange=allreduce"
            )
        if not self._left:
            raise SettingError(
                "backward() was called after some optimisers' steps, on a loss that was computed before these, or "
                "without calling a distributed model itself; accepted with exchange=server: such a call after the step"
            )
        self._coordinator.again()
        if (task := next(self._tasks, None)) is None:
            self._ended = True
            raise Stopped("the run was asked to end")
        self._task, self._computed, self._left = task, False, False
        self._turns.begin_again()
        self._replica.begin(task, computed=True)

    def before(self, optimizer: Optimizer, models: Sequence[ServedModel], *, closing: bool, top_level: bool) -> None:
        """Servers update, unless workers update their own. Raises SettingError for an optimiser that servers lack."""
        self._refuse_lent("optimizer.step() was called")
        if self.updates:
            return
        for model in models:
            model.refuse_other(optimizer)
        if self._waits and self._now is not None:
            if self._left and not self._turns.has_left(optimizer):
                self._begin_again()
            if not self._left:
                self._take(optimizer)
        for parameter in parameters_of(optimizer):
            parameter.grad = None  # servers update, or nobody does

    def _take(self, optimizer: Optimizer) -> None:
        """The gradients of the optimiser's parameters are in the update that servers make of this turn."""
        self._turns.weigh_waiting(self.weight)
        if not self._computed:
            self._compute(None, last=False)
        self._replica.take(ids_of(optimizer))

    def after(self, optimizer: Optimizer, models: Sequence[ServedModel], *, top_level: bool) -> None:
        """Count a step of an optimiser that servers have. Raises BadInput if it is a second one, or without a batch."""
        if not any(model.has(optimizer) for model in models):
            return
        if self._now is None or not self._turns.step(optimizer):
            raise BadInput(f"optimizer.step() twice, or without a batch; {NEEDED}")
        if self._turns.all_have and not self._left:
            if self.updates:
                self._replica.updated()
            self._complete()
        else:
            self._recorder.enter("between steps")

    def whole_loss(self, loss: Any, models: Sequence[ServedModel]) -> Any:
        """This worker's: no optimiser that servers can have goes by it."""
        return loss

    def clip(self, clip: ClipNorm, optimizers: Sequence[Optimizer]) -> float:
        """Have servers clip the update of the batch at hand; returns the norm of its gradient before.

        optimizers: those that step next, whose parameters have that gradient. It waits for what other workers learn
        from of the batch. Raises BadInput without a backward pass, or after a step, and SettingError if the loop did
        not clip before.
        """
        if self._now is None or self._task is None or not self._passed or self._turns.begun or self._left:
            raise BadInput(
                "worker.clip_grad_norm_ was called twice in a step, or without a backward pass; accepted with "
                "exchange=server: between backward() and optimizer.step()"
            )
        if not self._coordinator.may_clip:
            raise SettingError(
                "worker.clip_grad_norm_ was not called in the step before, and servers update as soon as they can if "
                "nothing clips; accepted with exchange=server: in every step, with max_norm=float('inf') where nothing "
                "is to be clipped"
            )
        self._complete(clip, optimizers)
        with self._recorder.waiting():
            return self._work.norm(self._task.clock)

    def _complete(self, clip: ClipNorm | None = None, clipped: Sequence[Optimizer] = ()) -> None:
        """The gradients of the batch at hand are made. clipped: the optimisers that step with them, before they do."""
        assert self._now is not None and self._task is not None
        self._first.end(nan)
        if not self._computed:
            self._compute(None, last=self._now.last)
        for optimizer in clipped if self._waits else ():
            self._take(optimizer)
        self._turns.leave(clipped)
        self._backward, self._passed, self._left = -1, 0, True
        if self._now.last:
            self._coordinator.complete(self._task, clip)
            self._finished = self._task.clock + 1
        else:
            self._recorder.enter("between steps")

    def save(self) -> None:
        """Have the run saved after this step. Raises SettingError within one, or within a period of `local`."""
        self._refuse_lent("worker.save was called")
        self._refuse_within("worker.save")
        self._replica.settle()
        with self._recorder.waiting():
            self._work.save(self._finished)

    @contextmanager
    def averages(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Give what servers keep (...), and its averages: of all updates that this worker has taken part in, where each
        is of all workers, else of those that servers have.

        Up to the end nothing else comes to the network. Raises SettingError within a step, or within itself.
        """
        self._refuse_lent("average.applied() was called")
        self._refuse_within("average.applied()")
        self._replica.settle()
        with self._replica.newest(0 if self._elastic else self._finished, averaged=True) as found:
            self._lent = True
            try:
                yield found
            finally:
                self._lent = False

    def consensus(self) -> AbstractContextManager[None]:
        """Lend the network the newest centre that servers have, if there is one; not where it has its average."""
        return self._replica.newest_lent() if self._around and not self._lent else nullcontext()

    def _refuse_lent(self, did: str) -> None:
        if self._lent:
            raise SettingError(
                f"{did} within average.applied(), where the model has its average in place of the trained weights; "
                "accepted: after it"
            )

    def _refuse_within(self, called: str) -> None:
        """Raise SettingError within what workers push at once, as some of that is not done."""
        self.entering()
        if self._now is not None and not self._elastic and not (self._turns.begun and self._now.last):
            after = "optimizer.step()" if not self._turns.begun else "the last step of a period of local"
            raise SettingError(f"{called} was called within what workers push at once; accepted: after {after}")

    def finish(self) -> None:
        """The loop is over: what is at hand counts, and the run is seen out."""
        if self._ended:
            return
        self._pass_on()
        if self._local:  # else what is not computed was never this worker's
            self._coordinator.cut_short()
        self._recorder.enter("idle")
        self._replica.settle()
        self._work.over(elastic=self._elastic)

    def close(self) -> None:
        self._held.close()

    @property
    def _passes(self) -> int:
        """Backward passes of a step whose gradients leave together: a worker that updates itself adds up its own."""
        return 1 if self._local else self._how.passes

    def _in_step(self, part: MicroBatch) -> MicroBatch:
        """The part as the loop's loss has it: a sum, or one of several means that are added up."""
        if self._local or (not self._how.summed and self._passes == 1):
            return part
        share = self._coordinator.part_of_batch
        weight = share if not self._how.summed else float(part.count > 0)
        return self._coordinator.weighed(part, share * self._coordinator.batch_size, weight)

    def _pass_on(self) -> None:
        """The batch at hand is over. Raises SettingError if only some optimisers have stepped, where all must."""
        if self._now is None:
            return
        if self._turns.begun and not (self._left or self._repeats):
            raise SettingError(
                "some optimisers have taken a step with a batch, and others have not; accepted with exchange=server: "
                "each takes a step with each batch, or consistency=bsp with passes=1, or exchange=allreduce"
            )
        if self._left:
            pass
        elif self._passed < self._passes and self._passes > 1:
            assert self._task is not None
            self._coordinator.postpone(self._task)
            self._finished = self._task.clock + 1
        else:
            self._complete()
        self._now = None

    def _coming(self) -> int | None:
        """The epoch of the next batch, which is not read yet; None: the run is over for this worker."""
        while (epoch := self._coordinator.coming_epoch) is None:
            self._task = next(self._tasks, None)
            if self._task is None:
                self._ended = True
                return None
            self._replica.begin(self._task)
            self._parts = self._task.parts
        return epoch
