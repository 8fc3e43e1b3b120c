"""The gradients of a model of a user's own loop: what passes of backward make, and what all workers agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.exchange.gradients.plain_layers import only_looks
from volary.train.own.early.absent_gradient import LOOKED_AT
from volary.train.own.gradients.carried_gradients import CarriedGradients
from volary.train.own.gradients.losses import StepLoss, loss_of_backward

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.own.model.averaging_period import AveragingPeriod
    from volary.train.own.model.distribution import Distribution
    from volary.train.own.model.loop_run import LoopRun
    from volary.train.own.model.step_agreement import StepAgreement


class LoopGradients:
    """The gradients of one model, which agree after the last backward pass of a step, or when they are used.

    agreement: of the model's steps. period: says whether workers update by their own gradients. weight: of this
    worker's. passes, summed: as of `LoopModel`. loss: of the step. passed: backward passes that are not agreed on.
    left_out: nothing came of the newest step.
    """

    def __init__(
        self,
        run: LoopRun,
        agreement: StepAgreement,
        period: AveragingPeriod,
        weight: Callable[[], float],
        passes: int,
        loss: StepLoss,
        *,
        summed: bool,
    ) -> None:
        self._run, self._agreement, self._period, self._weight = run, agreement, period, weight
        self._passes, self._summed, self.loss = passes, summed, loss
        self.passed = 0
        self._made = 0  # backward passes since a step
        self._in_backward = self._agreed = self._in_step = False
        self._stepped = set[int]()  # optimisers that have, since gradients were agreed on
        self.left_out = False
        self._carried: CarriedGradients | None = None  # into a round that may be left out
        self._now: Distribution
        self._beside: Group

    def within(self, now: Distribution, beside: Group) -> None:
        """The model is distributed so from now on. beside: those who have samples of their own, for their buffers."""
        self._now, self._beside = now, beside

    @property
    def first_pass(self) -> bool:
        """Whether the backward pass that comes next begins a step."""
        return not 0 < self._made < self._passes

    @property
    def under_way(self) -> bool:
        """Whether a step has begun, with a backward pass, and not ended."""
        return self._made > 0

    def before_step(self, optimizer: Optimizer, *, closing: bool) -> None:
        """An optimiser is about to step by them. closing: it calls backward itself. Raises SettingError."""
        self._in_step = True
        if self._in_backward:
            raise SettingError("optimizer.step() was called within backward(), where gradients have not been agreed on")
        if self._period.updates:
            self.left_out = self._run.members.leaves_out
            if self._run.share.empty:
                trained = self._now.contents.trained
                torch._foreach_zero_([one.grad for one in trained if one.grad is not None])
        elif not closing and (self.passed or not self._agreed or id(optimizer) in self._stepped):
            # fewer passes than were announced, or none that reached a parameter
            self.agree()
        if self.left_out:
            for parameter in self._now.contents.trained:
                parameter.grad = None  # of which torch's optimisers change nothing

    def after_step(self, optimizer: Optimizer) -> None:
        """The optimiser has stepped by them."""
        if self._carried is not None:
            self._run.members.stand()
            self._carried = None
        self._stepped.add(id(optimizer))
        self._in_step, self._made = False, 0

    @only_looks
    def reached(self, parameter: Tensor) -> None:
        """A backward pass comes to a parameter, of any shape."""
        if self._in_backward:
            return
        now, early = self._now, self._now.early
        self._in_backward = True
        self._run.recorder.enter_step("backward")
        self._run.begin()
        if now.cut is not None:
            now.cut.uncover()
        self._add_loss()
        if early is not None and early.updates_on_arrival:
            early.begin_pass()
            if self._agrees_after_pass():
                self._agreement.vote(now.strategy, self.loss.part, ahead=True)
        self.remove_placeholders()
        self._keep_agreed(parameter)
        # what follows backward (clipping, a gradient scaler, a log) must see the agreed gradients
        torch.autograd.Variable._execution_engine.queue_callback(self._passed_backward)

    def look(self) -> None:
        """A gradient is used that buckets have: all workers use it here. Raises SettingError."""
        if self._arrive_late:
            raise SettingError(LOOKED_AT)
        if self.passed:
            self.agree()
            self._run.recorder.enter("forward")

    def agree(self) -> None:
        """Let them be those of all workers."""
        self.remove_placeholders()
        cut = self._now.cut
        if cut is not None:
            cut.uncover()
        self.left_out = not self._run.members.step(self._agree_with_others)
        if self.left_out:
            self._leave_out()
        elif self._run.members.recovers and not (self._in_step or self.first_pass):
            self._carried = CarriedGradients(self._now.contents.trained, self.loss)
        if cut is not None and not self._in_step:
            cut.cover()

    def remove_placeholders(self) -> None:
        """Let parameters have what autograd has added to their gradients."""
        if cleared := self._now.held.remove_placeholders():
            self._now.strategy.drop(cleared)

    def share_buffers(self) -> None:
        """The step is over: let all have the first rank's buffers. A collective call."""
        self.passed, self._in_backward = 0, False
        if self._exchanges:  # of batch norm, say: any rank may evaluate, and all find the same
            self._now.contents.take_buffers(self._beside, rests=self._run.share.rests)

    @property
    def _exchanges(self) -> bool:
        """Whether other workers have samples of their own."""
        return self._now.rank.replicas.size > 1

    @property
    def _arrive_late(self) -> bool:
        return self._now.early is not None and self._now.early.updates_on_arrival

    def _keep_agreed(self, first: Tensor) -> None:
        if self._carried is not None and not self.passed and self._carried.changed(first):
            self._carried = None
        exchanged = self._exchanges and not self._period.updates
        if self._now.held.reached(first, agreed=exchanged and self._made > 0 and not self.passed) and self._summed:
            raise SettingError(
                "backward() was called again before optimizer.step(), and gradients of the calls before are summed "
                'over all workers already; accepted with loss="sum": worker.distribute(..., passes=k) for k calls'
            )

    def _add_loss(self) -> None:
        loss = loss_of_backward()
        if loss is not None:
            self.loss.add(loss.item(), self._weight(), first=self.first_pass)
            self.loss.judge(loss, self._run.share.samples)

    def _passed_backward(self) -> None:
        agrees = self._agrees_after_pass()
        self.passed, self._made = self.passed + 1, self._made + 1
        self._in_backward = False
        if self._period.updates:
            if self._now.cut is not None and not self._in_step:
                self._now.cut.cover()
        else:
            if agrees:
                self.agree()
            if self._exchanges and (self._arrive_late or not agrees):
                self._now.held.put_placeholders()
        self._run.recorder.enter("forward")

    def _agrees_after_pass(self) -> bool:
        """Whether gradients agree after the backward pass that is under way.

        With the last batch of an epoch a step may have fewer: they agree then where later ones can still be added.
        """
        addable = not self._summed and not self._arrive_late
        return self._made + 1 >= self._passes or (self._run.share.ends_epoch and addable)

    def _leave_out(self) -> None:
        """Nothing comes of the passes since gradients agreed last: they are what they were then, of the same step.

        If there was no such pass, gradients are zero, and parameters stay as they are.
        """
        self._now.strategy.forget()
        self._now.strategy.expect()
        self._now.held.agreed()
        if self._carried is not None:
            self._carried.bring()
            self.left_out = False
        else:
            for parameter in self._now.contents.trained:
                parameter.grad = torch.zeros_like(parameter)
        self._agreed, self.passed, self._in_backward = True, 0, False
        self._stepped.clear()

    def _agree_with_others(self) -> None:
        codec, now = self._run.settings.codec, self._now
        if not self._run.share.total and codec.at(0) != codec:
            raise SettingError(
                "the codec's warm-up counts samples, and the loop does not get its batches from worker.feed; accepted: "
                "warm_up_samples=0, or worker.feed"
            )
        self._agreement.vote(now.strategy, self.loss.part)
        agreed = self._agreement.reached(now.strategy)
        self.loss.agree(agreed.loss)
        self._agreed = True
        if now.early is not None:
            now.early.wait()
        self._stepped.clear()
        for parameter in now.contents.sparse:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                parameter.grad = _of_few_rows(parameter.grad)
        now.held.agreed()
        self.share_buffers()


def _of_few_rows(gradient: Tensor) -> Tensor:
    """The same (rows, ...), sparse: without the rows that are all zero. So embeddings have it, and SparseAdam."""
    rows = gradient.reshape(len(gradient), -1).any(1).nonzero().flatten()
    return torch.sparse_coo_tensor(
        rows[None], gradient[rows], gradient.shape, is_coalesced=True, check_invariants=False
    )
