"""A model of a user's own loop: its gradients agree as backward ends, or as late as under the next forward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError
from volary.exchange.gradients.plain_layers import only_looks
from volary.naming import trained_parameters
from volary.train.agreement.lent import lent_mean
from volary.train.coordinator import LearnTask
from volary.train.own.early.absent_gradient import LOOKED_AT
from volary.train.own.model.averaging_period import AveragingPeriod
from volary.train.own.model.distribution import ModelCallbacks, distribute
from volary.train.own.model.losses import StepLoss, loss_of_backward
from volary.train.own.model.step_agreement import StepAgreement
from volary.train.own.parts.loop_passes import LoopPasses, refuse_batch

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.own.model.loop_run import LoopRun
    from volary.train.own.model.model_average import ModelAverage
    from volary.train.own.parts.cut_model import CutModel
    from volary.train.own.parts.loop_passes import LossFunction
    from volary.train.strategies.strategy_state import StrategyState


class LoopModel:
    """Turns a user's calls of `backward` and `optimizer.step` into agreed gradients, or means of parameters.

    group: of this model alone. passes: backward passes of a step; gradients agree after the last, or when they are
    used. state: what a checkpoint brings and takes. summed: the loss is a sum over samples, no mean. early: the
    optimiser whose updates may come as late as under the next forward. beside: a group for what all say meanwhile.
    contents: what the model held when it was distributed last. strategy: how its replicas stay one.
    """

    def __init__(
        self,
        model: nn.Module,
        run: LoopRun,
        group: Group,
        passes: int,
        state: StrategyState,
        *,
        summed: bool,
        early: Optimizer | None = None,
        beside: Group | None = None,
    ) -> None:
        self.model = model
        self._run, self._group, self._passes, self._summed = run, group, passes, summed
        self._early_optimizer, self._beside = early, beside or group
        self.agreement = StepAgreement(run, self._beside)
        self.averages: list[ModelAverage] = []
        self._lent = False  # the model has what all replicas are together
        self._closed = False
        self.loss = StepLoss(run.recorder if group.size > 1 and not summed else None)
        self._consistency = run.settings.consistency.among(run.settings.partition.mesh(group.size).shares)
        self.period = AveragingPeriod(self._consistency, run.share, lambda: run.recorder.step)
        self._passed = 0  # backward passes that have not been agreed on
        self._made = 0  # backward passes since a step
        self._in_backward = self._agreed = self._in_step = False
        self._stepped = set[int]()  # optimisers that have, since gradients were agreed on
        self.left_out = False  # the newest step
        self.state, self._versions = state, count()
        self._distribute()

    @property
    def cut(self) -> CutModel | None:
        """The handling of a model of which workers hold parts; None: each has all."""
        return self._now.cut

    @property
    def replicas(self) -> Group:
        """The workers that have samples of their own, this one among them."""
        return self._now.rank.replicas

    @property
    def _among_replicas(self) -> Group:
        """The same, for what they say beside their exchange."""
        return self._beside if self.replicas.size == self._group.size else self.replicas

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self.contents

    def weight(self) -> float:
        """The factor of this worker's gradients, and of its loss."""
        if not self._summed:
            return self._run.share.weight
        return float(not self._run.share.rests)

    def follow(self) -> None:
        """Distribute the model anew if it has changed since. A collective call then. Raises SettingError."""
        if self._group.size == 1 or not (changed := self.contents.changed()):
            return
        if self._passed:
            raise SettingError(f"{changed} since the step's first backward; accepted: such changes between two steps")
        if not self._consistency.equal:
            raise SettingError(f"{changed}, and workers' parameters differ; accepted: a model that stays as it is")
        if self.cut is not None:
            raise SettingError(f"{changed}, and workers hold parts of it; accepted: a model that stays as it is")
        self._run.recorder.event("warning", text=f"{changed}; the model was distributed anew")
        self.again()

    def refuse_changed(self) -> None:
        """Raise SettingError if the model has changed since `follow`: its new parameters are not agreed on."""
        if self._group.size > 1 and (changed := self.contents.changed()):
            raise SettingError(
                f"{changed}, which no worker.feed has seen before this step; accepted: such changes before the next "
                "batch is taken, or worker.distribute(model) after them"
            )

    @property
    def updates_on_arrival(self) -> bool:
        """Whether updates are made as sums arrive, after `optimizer.step()`, and no gradient is ever seen."""
        return self._early is not None and self._early.updates_on_arrival

    def again(self, early: Optimizer | None = None) -> None:
        """Distribute the model as it is now. A collective call. early: the optimiser to update early, if another."""
        self._early_optimizer = early or self._early_optimizer
        self.settle()
        for average in self.averages:
            average.catch_up()
        if self._early is not None:
            self._early.bring()
        self.close()
        self._remove_placeholders()
        self._distribute()

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        """Scale gradients so that their norm is at most `max_norm`; the norm before, a scalar. Raises SettingError."""
        if self._passed and not self.period.updates:
            self._agree()
        if self._early is not None and self._early.updates_on_arrival:
            self._now.held.put_placeholders()
            return self._early.clip(parameters, max_norm, kind)
        if self.cut is not None:
            self.cut.uncover()
            norm = self.cut.clip(parameters, max_norm, kind)
            self.cut.cover()
            return norm
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, kind)

    def before(self, optimizer: Optimizer, *, closing: bool, top_level: bool) -> None:
        """Agree on gradients, unless they are. closing: the optimiser calls backward itself. Raises SettingError.

        top_level: no other optimiser has called its step.
        """
        self._remove_placeholders()
        self._in_step = True
        for average in self.averages:
            average.refuse_applied("optimizer.step()")
        if self._in_backward:
            raise SettingError("optimizer.step() was called within backward(), where gradients have not been agreed on")
        if self.period.updates:
            if top_level:
                self.period.refuse_second(optimizer)
            if top_level and not self.period.under_way:
                self.strategy.begin(LearnTask(iter(()), self._run.recorder.step, 0, 0))
            if self._run.share.empty:
                torch._foreach_zero_([one.grad for one in self.contents.trained if one.grad is not None])
        elif not closing and (self._passed or not self._agreed or id(optimizer) in self._stepped):
            # fewer passes than were announced, or none that reached a parameter
            self._agree()
        if self.left_out:
            for parameter in self.contents.trained:
                parameter.grad = None  # of which torch's optimisers change nothing
        if self.cut is not None:
            self.cut.require_held(optimizer)
            self.cut.uncover()
        if self._early is not None:
            self._early.refuse_other(optimizer)
        for average in self.averages:
            average.catch_up()  # backward was over before the updates of the step before

    def after(self, optimizer: Optimizer, *, top_level: bool) -> None:
        """The optimiser has stepped. top_level: no other optimiser has called its step."""
        self._stepped.add(id(optimizer))
        self._in_step = False
        if self._group.size > 1 and self._run.settings.replicas_equal and not self.period.updates:
            self.agreement.see(optimizer)
        self._made = 0
        if self._early is not None:
            self._early.apply()
        if top_level and self.period.updates:
            self.strategy.updated()
            if self.period.end_step():
                self.end_period()
        if top_level and not self.period.under_way and not self.left_out:
            self._take([one for group in optimizer.param_groups for one in group["params"]])

    def compare(self, step: int) -> None:
        """Raise RanksDiffer unless all workers have the same bits, where they should. A collective call."""
        if not self.period.under_way:
            self.settle()
            self._run.members.make(lambda: self._compare(step))

    def _compare(self, step: int) -> None:
        compare = self._now.rank.compare(self._run.settings)
        if compare is not None:
            with self._run.recorder.called("the comparison of replicas"):
                compare(step)

    def learn(self, inputs: Any, targets: Any, loss_function: LossFunction) -> Tensor:
        """Forward and backward of this worker's samples (count, ...); the loss, as it is over them. Raises BadInput."""
        refuse_batch(inputs, targets)

        def on_loss(loss: Tensor) -> None:
            self.loss.hear(loss.item(), self.weight(), first=not 0 < self._made < self._passes)

        recorder = self._run.recorder
        passes = LoopPasses(self.model, inputs, targets, loss_function, recorder, on_loss, self._summed)
        self._now.rank.part.learn(passes)
        return passes.losses[-1]

    def settle(self) -> None:
        """Wait for all updates, and for the means of workers' own, unless a period of these is under way."""
        if not self.period.under_way:
            self.strategy.settle()

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Lend the model what all replicas are together. A collective call."""
        lent = self._lent_mean() if self.period.under_way and self._consistency.equal else self.strategy.consensus()
        with lent:
            self._lent = True
            try:
                yield
            finally:
                self._lent = False

    def end_period(self) -> None:
        """All replicas become their mean. A collective call."""
        self.agreement.vote_on_period(self.strategy, self.period, self.replicas.size)
        agreed = self.agreement.hear(self.strategy)
        self.strategy.apply()
        self.period.begin(agreed.step_s)
        if self._run.share.ends_epoch and self._consistency.equal:
            self.settle()
        self._share_buffers()

    def meet(self) -> None:
        """All workers are here: a period of their own updates ends, and all updates are done. A collective call."""
        if self.period.under_way:
            self.end_period()
            self._take(self.contents.trained)
        self.settle()

    def finish(self) -> None:
        """The user's loop is over: wait for what is under way."""
        self.settle()
        self.strategy.finish()
        if (own_copy := self._now.own_copy) is not None and self.period.under_way:
            own_copy.tell("the loop has ended, and the model")

    def rank_state(self) -> dict[str, Any]:
        """The state that no other worker's replica has, within `consensus`."""
        return {name: one.rank_state() for name, one in self.strategy.own.items()}

    def restore_rank(self, state: Mapping[str, Any]) -> None:
        """Go on from what this worker's replica had, once all have what they have together."""
        for name, one in self.strategy.own.items():
            one.restore_rank([state[name]] if name in state else [])
        self.strategy.take_own()

    def close(self) -> None:
        """Remove the hooks from the user's model; harmless when repeated."""
        if not self._closed:
            self._now.close()
            self._run.recorder.retire(self.strategy.traffic)
        self._closed = True

    def suspend(self) -> None:
        """The group is of no use any more; harmless when repeated."""
        if not self._closed:
            self._now.held.remove_placeholders()
        self.close()

    def regroup(self, group: Group, *, leaves_out: bool) -> None:
        """Go on in another group, whose workers' models are equal. A collective call. leaves_out: of the iteration."""
        self._group = self._beside = group
        self.agreement.within(group)
        self._consistency = self._run.settings.consistency.among(group.size)
        self._distribute()
        if leaves_out:
            self.strategy.forget()

    def _distribute(self) -> None:
        self.agreement.begin()
        self._now = now = distribute(
            self.model,
            self._run,
            self._group.within(f"version {next(self._versions)}"),
            self._beside,
            self._passes,
            self.state,
            self._early_optimizer,
            ModelCallbacks(self._reached, self._look, self.weight, self.settle, self._why_own),
        )
        self._closed = False
        self.contents, self.strategy, self._early = now.contents, now.strategy, now.early

    def _take(self, updated: Sequence[Tensor]) -> None:
        for average in self.averages:
            average.take(updated)

    def _why_own(self) -> str:
        lent = self._lent or any(one.is_applied for one in self.averages)
        return "" if lent else self.period.own_copy

    def _lent_mean(self) -> AbstractContextManager[object]:
        mean_weight = self.period.weight(self.replicas.size)
        return lent_mean(trained_parameters(self.model), mean_weight, self._among_replicas)

    @only_looks
    def _reached(self, parameter: Tensor) -> None:
        if not self._in_backward:
            self._in_backward = True
            self._run.recorder.enter_step("backward")
            self._run.begin()
            if self.cut is not None:
                self.cut.uncover()
            self._hear()
            if self._early is not None and self._early.updates_on_arrival:
                self._early.begin_pass()
                if self._agrees_after_pass():
                    self.agreement.vote(self.strategy, self.loss.part, ahead=True)
            self._remove_placeholders()
            self._keep_agreed(parameter)
            # what follows backward (clipping, a gradient scaler, a log) must see the agreed gradients
            torch.autograd.Variable._execution_engine.queue_callback(self._passed_backward)

    def _keep_agreed(self, first: Tensor) -> None:
        exchanged = self._exchanges and not self.period.updates
        if self._now.held.reached(first, agreed=exchanged and self._made > 0 and not self._passed) and self._summed:
            raise SettingError(
                "backward() was called again before optimizer.step(), and gradients of the calls before are summed "
                'over all workers already; accepted with loss="sum": worker.distribute(..., passes=k) for k calls'
            )

    def _hear(self) -> None:
        loss = loss_of_backward()
        if loss is not None:
            self.loss.hear(loss.item(), self.weight(), first=not 0 < self._made < self._passes)
            self.loss.judge(loss, self._run.share.samples)

    def _passed_backward(self) -> None:
        agrees = self._agrees_after_pass()
        self._passed, self._made = self._passed + 1, self._made + 1
        self._in_backward = False
        if self.period.updates:
            if self.cut is not None and not self._in_step:
                self.cut.cover()
        else:
            if agrees:
                self._agree()
            if self._exchanges and (self.updates_on_arrival or not agrees):
                self._now.held.put_placeholders()
        self._run.recorder.enter("forward")

    def _agrees_after_pass(self) -> bool:
        """Whether gradients agree after the backward pass that is under way.

        With the last batch of an epoch a step may have fewer: they agree then where later ones can still be added.
        """
        addable = not self._summed and not self.updates_on_arrival
        return self._made + 1 >= self._passes or (self._run.share.ends_epoch and addable)

    def _look(self) -> None:
        """A gradient is used that buckets have: all workers use it here. Raises SettingError."""
        if self.updates_on_arrival:
            raise SettingError(LOOKED_AT)
        if self._passed:
            self._agree()
            self._run.recorder.enter("forward")

    @property
    def _exchanges(self) -> bool:
        """Whether other workers have samples of their own."""
        return self.replicas.size > 1

    def _agree(self) -> None:
        self._remove_placeholders()
        if self.cut is not None:
            self.cut.uncover()
        self.left_out = not self._run.members.step(self._agree_with_others)
        if self.left_out:
            self._leave_out()
        if self.cut is not None and not self._in_step:
            self.cut.cover()

    def _leave_out(self) -> None:
        """Nothing comes of the passes since the step before: gradients are zero, and parameters stay as they are."""
        self.strategy.forget()
        self.strategy.expect()
        self._now.held.agreed()
        for parameter in self.contents.trained:
            parameter.grad = torch.zeros_like(parameter)
        self._agreed, self._passed, self._in_backward = True, 0, False
        self._stepped.clear()

    def _agree_with_others(self) -> None:
        codec = self._run.settings.codec
        if not self._run.share.total and codec.at(0) != codec:
            raise SettingError(
                "the codec's warm-up counts samples, and the loop does not get its batches from worker.feed; accepted: "
                "warm_up_samples=0, or worker.feed"
            )
        self.agreement.vote(self.strategy, self.loss.part)
        agreed = self.agreement.hear(self.strategy)
        self.loss.agree(agreed.loss)
        self._agreed = True
        if self._early is not None:
            self._early.wait()
        self._stepped.clear()
        for parameter in self.contents.sparse:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                parameter.grad = _of_few_rows(parameter.grad)
        self._now.held.agreed()
        self._share_buffers()

    def _remove_placeholders(self) -> None:
        if cleared := self._now.held.remove_placeholders():
            self.strategy.drop(cleared)

    def _share_buffers(self) -> None:
        self._passed, self._in_backward = 0, False
        if self._exchanges:  # of batch norm, say: any rank may evaluate, and all find the same
            self.contents.take_buffers(self._among_replicas, rests=self._run.share.rests)


def _of_few_rows(gradient: Tensor) -> Tensor:
    """The same (rows, ...), sparse: without the rows that are all zero. So embeddings have it, and SparseAdam."""
    rows = gradient.reshape(len(gradient), -1).any(1).nonzero().flatten()
    return torch.sparse_coo_tensor(
        rows[None], gradient[rows], gradient.shape, is_coalesced=True, check_invariants=False
    )
