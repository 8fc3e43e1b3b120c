"""A model of a user's own loop: its gradients agree as backward ends, or its parameters now and then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError
from volary.naming import trained_parameters
from volary.train.agreement.lent import lent_mean
from volary.train.coordinator import LearnTask
from volary.train.own.gradients.loop_gradients import LoopGradients
from volary.train.own.gradients.losses import StepLoss
from volary.train.own.model.averaging_period import AveragingPeriod
from volary.train.own.model.distribution import ModelCallbacks, distribute
from volary.train.own.model.step_agreement import StepAgreement
from volary.train.own.parts.loop_passes import LoopPasses, refuse_batch
from volary.train.own.recovering.replica_state import ReplicaState
from volary.train.update.held_parameters import parameters_of

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
        self._kept: ReplicaState | None = None  # what the next group's begins with
        self._consistency = run.settings.consistency.among(run.settings.partition.mesh(group.size).shares)
        self.period = AveragingPeriod(self._consistency, run.share, lambda: run.recorder.step)
        self.loss = StepLoss(run.recorder if group.size > 1 and not summed else None)
        self.gradients = LoopGradients(run, self.agreement, self.period, self.weight, passes, self.loss, summed=summed)
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
        if self.gradients.passed:
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
        self.gradients.remove_placeholders()
        self._distribute()

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        """Scale gradients so that their norm is at most `max_norm`; the norm before, a scalar. Raises SettingError."""
        if self.gradients.passed and not self.period.updates:
            self.gradients.agree()
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
        self.gradients.remove_placeholders()
        for average in self.averages:
            average.refuse_applied("optimizer.step()")
        if self.period.updates and top_level:
            self.period.refuse_second(optimizer)
            self._run.members.hold(optimizer)
            if not self.period.under_way and not self._run.members.leaves_out:
                self.strategy.begin(LearnTask(iter(()), self._run.recorder.step, 0, 0))
        self.gradients.before_step(optimizer, closing=closing)
        if self.cut is not None:
            self.cut.require_held(optimizer)
            self.cut.uncover()
        if self._early is not None:
            self._early.refuse_other(optimizer)
        for average in self.averages:
            average.catch_up()  # backward was over before the updates of the step before

    def after(self, optimizer: Optimizer, *, top_level: bool) -> None:
        """The optimiser has stepped. top_level: no other optimiser has called its step."""
        self.gradients.after_step(optimizer)
        if self._group.size > 1 and self._run.settings.replicas_equal and not self.period.updates:
            self.agreement.see(optimizer)
        if self._early is not None:
            self._early.apply()
        if top_level and self.period.updates:
            self._end_own_step()
        if top_level and self.gradients.left_out:
            self.loss.take()
        elif top_level and not self.period.under_way:
            self._take(parameters_of(optimizer))

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
            self.loss.add(loss.item(), self.weight(), first=self.gradients.first_pass)

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
        """All replicas become their mean, unless a worker is lost, and nothing comes of the period."""
        self.gradients.left_out = not self._run.members.step(self._meet_in_mean)

    def meet(self) -> None:
        """All workers are here: a period of their own updates ends, and all updates are done. A collective call."""
        if self.period.under_way:
            self.end_period()
            if not self.gradients.left_out:
                self._take(self.contents.trained)
        self.settle()

    def finish(self) -> None:
        """The user's loop is over: wait for what is under way."""
        self.settle()
        self.strategy.finish()
        if (own_copy := self._now.own_copy) is not None and self.period.under_way:
            own_copy.warn("the loop has ended, and the model")

    def rank_state(self) -> dict[str, Any]:
        """The state that no other worker's replica has, within `consensus`."""
        return {name: one.rank_state() for name, one in self.strategy.own.items()}

    @property
    def updates(self) -> bool:
        """Whether workers update the model by themselves."""
        return self.period.updates

    def replica_state(self) -> ReplicaState:
        """A copy of what this worker's replica is, where replicas differ."""
        return ReplicaState.of(self.strategy, self.state)

    def go_on_from(self, state: ReplicaState | None) -> None:
        """Let the replica be this in the next group; None: what others there have."""
        self._kept = state

    def leave_out(self) -> None:
        """Nothing comes of the steps since all workers agreed last."""
        self.period.begin_anew()

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
            if self._kept is None and self.updates:
                self._kept = self.replica_state()
        self.close()

    def regroup(self, group: Group, *, leaves_out: bool) -> None:
        """Go on in another group. A collective call. leaves_out: the round that is under way, or the next one."""
        self._group = self._beside = group
        self.agreement.within(group)
        self._consistency = self._run.settings.consistency.among(group.size)
        self.period.within(self._consistency, measured=self._run.members.equal)
        self._versions = count()
        kept = self._kept
        if kept is not None:
            kept.give_alike(self.model)
            self.state.outer.begin_anew(deepcopy(kept.outer))
        self._distribute()
        if kept is not None:
            self.restore_rank(kept.own_of(group.size))
            self._kept = None
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
            ModelCallbacks(self.gradients.reached, self.gradients.look, self.weight, self.settle, self._why_own),
        )
        self._closed = False
        self.contents, self.strategy, self._early = now.contents, now.strategy, now.early
        self.gradients.within(now, self._among_replicas)

    def _end_own_step(self) -> None:
        """This worker has updated its own parameters: the mean of all may be due."""
        if not self.gradients.left_out:
            self.strategy.updated()
        due = self.period.end_step()
        if not self._run.members.own_step():
            self.gradients.left_out = True
        elif due:
            self.end_period()

    def _meet_in_mean(self) -> None:
        self.agreement.vote_on_period(self.strategy, self.period, self.replicas.size)
        agreed = self.agreement.reached(self.strategy)
        self.strategy.apply()
        self.period.begin(agreed.step_s)
        if self._run.share.ends_epoch and self._consistency.equal:
            self.settle()
        self.gradients.share_buffers()

    def _take(self, updated: Sequence[Tensor]) -> None:
        for average in self.averages:
            average.take(updated)

    def _why_own(self) -> str:
        lent = self._lent or any(one.is_applied for one in self.averages)
        return "" if lent else self.period.own_copy

    def _lent_mean(self) -> AbstractContextManager[object]:
        mean_weight = self.period.weight(self.replicas.size)
        return lent_mean(trained_parameters(self.model), mean_weight, self._among_replicas)
