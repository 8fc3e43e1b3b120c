"""A loop of a user's own in which each worker has all parameters, and agrees on gradients or means with the others."""

from __future__ import annotations

import itertools
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from volary.errors import BadInput, NotSaved, SettingError
from volary.naming import named_parameters, unwrapped
from volary.network.operations.sync_norm import has_batch_norm
from volary.train.own.early.early_update import optimizer_of
from volary.train.own.first_steps import FirstSteps
from volary.train.own.gradients.losses import LossWatch
from volary.train.own.hooks import OptimizerHooks
from volary.train.own.lockstep_feeds import LockstepFeeds
from volary.train.own.loop_checkpoints import LoopCheckpoints
from volary.train.own.model.loop_model import LoopModel
from volary.train.own.model.loop_run import LoopRun
from volary.train.own.model.loop_steps import LoopSteps
from volary.train.own.model.model_average import ModelAverage
from volary.train.own.model.share import Share, Weighing
from volary.train.own.recovering.fixed_members import FixedMembers, refuse_with_recovery
from volary.train.own.together import called_by_all, exchange, sure_call, total
from volary.train.saving.saver import GroupSaver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.session.script import Script
    from volary.sharding.samples import SampleShare
    from volary.train.member.pulse import EndWatch
    from volary.train.own.loop_feed import FeedPosition, LoopFeed
    from volary.train.own.recovering.fixed_members import Members
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts


Found = TypeVar("Found")
OVER_SAMPLES = ("learn", "mean", "sum", "metric", "evaluate")  # count a sample once, however many workers have it


class ReplicatedLoop:
    """See `LoopBackend`. group: of all workers; of one that joins others, itself, until it has met them.

    drafts: makes those of checkpoints of a group; None where there is no run to keep.
    """

    def __init__(
        self,
        script: Script,
        group: Group,
        recorder: Recorder,
        pulse: EndWatch,
        device: torch.device,
        drafts: Callable[[Group], Drafts] | None = None,
        members: Members | None = None,
    ) -> None:
        self._members = FixedMembers() if members is None else members
        self._script, self._group, self._recorder, self._device = script, group, recorder, device
        self._mesh = script.strategy.partition.mesh(group.size)
        self._share = Share(1 / self._mesh.shares)
        self._make_drafts, self._drafts = drafts, None if drafts is None or self._members.waits else drafts(group)
        self._saver = self._saver_of(self._drafts)
        self.checkpoints = LoopCheckpoints(self._saver, recorder, self._share, distributed=lambda: self._models)
        together = partial(called_by_all, self, recorder)
        self._run = LoopRun(script.strategy, self._share, recorder, pulse, together, self._members, self._begin)
        self._feeds = LockstepFeeds(self, self._members, self._share, recorder, device, exchange(group, "feed"))
        self._models: list[LoopModel] = []
        self._optimizers: list[Optimizer] = []  # given to `distribute`
        self._first = FirstSteps(recorder) if self._mesh.shares > 1 else None
        self._weighing = Weighing(recorder, self._group_to_weigh, survives=self._members.recovers)
        self._for_calls: Group | None = None  # for calls that all workers make between steps, from the first one on
        self._for_samples: Group | None = None  # likewise, of workers that have samples of their own
        self._hooks: OptimizerHooks[LoopModel] | None = None
        self._watch: LossWatch | None = None
        self._gathered = itertools.count(1)

    @property
    def rank(self) -> int:
        return self._members.awaited[0] if self._members.waits else self._group.rank

    @property
    def size(self) -> int:
        return self._members.awaited[1] if self._members.waits else self._group.size

    @property
    def models(self) -> list[nn.Module]:
        return [one.model for one in self._models]

    def make(self, act: Callable[[], Found]) -> Found:
        return self._members.make(act)

    def suspend(self) -> None:
        for model in self._models:
            model.suspend()
        if self._saver is not None:
            self._saver.finish()

    def regroup(self, group: Group, *, leaves_out: bool) -> None:
        self._group, self._mesh = group, self._script.strategy.partition.mesh(group.size)
        self._for_calls = self._for_samples = None
        self._weighing.regroup()
        if self._make_drafts is not None and not self._members.equal:
            self._drafts = self._make_drafts(group)  # those that join may not see the run's directory
        self._saver = self._saver_of(self._drafts, self._saver.saved if self._saver is not None else 0)
        self.checkpoints.saver = self._saver
        if not self._share.total:
            self._share.of_samples = 1 / self._mesh.shares
        self._gathered = itertools.count(1)
        for model in self._models:
            model.regroup(group, leaves_out=leaves_out)

    def state(self) -> dict[str, Any]:
        saved = 0
        if self._saver is not None:
            self._saver.settle()  # over connections that are about to end
            saved = self._saver.saved
        with self.consensus("feed") if self._replicas_differ else nullcontext():
            own = [model.rank_state() for model in self._models]
            state = {**self.checkpoints.state(own), "batches": self._share.batches, "saved": saved}
            return deepcopy(state) if self._replicas_differ else state

    def take_over(self, state: Mapping[str, Any], workers: int) -> None:
        self.checkpoints.take_over(state, workers)
        self._share.batches = state["batches"]
        self._saver = self._saver_of(self._drafts, state["saved"])
        for model in self._models:
            model.go_on_from(None)

    def leave_out(self) -> None:
        for model in self._models:
            model.leave_out()

    def weight(self, group: Group) -> float:
        return self._share.weight

    @property
    def outcome(self) -> Literal["stopped", "left"]:
        return "left" if self._members.has_left else "stopped"

    def distribute(
        self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], passes: int, *, summed: bool, early: bool
    ) -> None:
        self._optimizers += optimizers
        for model in models:
            self._distribute(model, passes, summed, optimizer_of(model, optimizers) if early else None)
        for one in self._models:
            if one.cut is not None:
                one.cut.hold(optimizers)
        if self._watch is None and self._group.size > 1 and not summed and self._script.strategy.consistency.equal:
            self._watch = LossWatch(self._recorder, lambda: None if self._share.weighed else self._share.samples)

    def sync_batch_norm(self, model: nn.Module) -> None:
        refuse_with_recovery(self._members, "worker.sync_batch_norm, which binds layers to all workers")
        self._run.sync_batch_norm(model, self._group_of_all)

    def average(self, model: nn.Module, decay: float) -> ModelAverage:
        known = next(one for one in self._models if unwrapped(one.model) is unwrapped(model))
        strategy = self._script.strategy
        if known.cut is not None and known.averages:
            raise SettingError(
                f"worker.average was called twice, and with partition={known.cut.partition} workers save one average "
                "of the parts that they hold; accepted: once"
            )
        if self._replicas_differ:
            raise SettingError(
                "worker.average: workers' parameters differ at all times, so that there are no weights of all workers "
                "to average; accepted: consistency=bsp, or local without fragments"
            )
        if strategy.exchange.behind:
            raise SettingError(
                "worker.average: exchange.behind is true, and updates are under way at all times; accepted: false"
            )
        average = ModelAverage(known, decay)
        if known.cut is not None:
            known.cut.keep(average)
        return average

    def weigh(self, count: float) -> None:
        share = self._share
        if any(model.cut is not None and model.cut.in_stages for model in self._models):
            raise BadInput(
                "worker.weigh: with partition=pipeline a batch passes in micro-batches, each with a count of its own; "
                'accepted: worker.distribute(..., loss="sum"), and a sum that is divided by what counts of the batch'
            )
        if self._members.leaves_out:
            return
        # what went through the loop may be another worker's
        share.weighed = self._weighing(count if share.samples or not share.total else 0.0)

    def clip(self, parameters: Sequence[Tensor], max_norm: float, kind: float) -> Tensor:
        found = [model for model in self._models if any(one in model for one in parameters)]
        if len(found) != 1:
            raise BadInput(
                f"worker.clip_grad_norm_ was given parameters of {len(found)} distributed models; accepted: of one"
            )
        return found[0].clip(parameters, max_norm, kind)

    def learn(self, inputs: Any, targets: Any, loss_function: Callable[[Any, Any], Tensor]) -> Tensor:
        if len(self._models) != 1:
            raise BadInput(f"worker.learn: {len(self._models)} models are distributed; accepted: one")
        (model,) = self._models
        if model.cut is not None:
            model.cut.require_fed()
        loss = model.learn(inputs, targets, loss_function)
        weight = model.weight()
        whole: Tensor = sure_call(self, self._recorder, "learn", lambda group: total(loss, group, weight))
        return whole

    def feed(self, data: Any, batch_size: int | None, shuffle: bool | None) -> LoopFeed:
        return self._feeds.feed(data, batch_size, shuffle, differ=self._replicas_differ)

    @property
    def samples(self) -> SampleShare:
        return self._mesh.samples(self._group.rank)  # type: ignore[no-any-return]

    def peers(self, called: str) -> Group:
        if called != "feed":
            self._members.require_others(f"worker.{called}")
        self._members.require_joined()
        if called == "channel":
            refuse_with_recovery(self._members, "worker.channel, which are connections to all workers")
        if self._for_calls is None:
            self._for_calls = self._group_of_all() if self._group.size > 1 else self._group
        if called not in OVER_SAMPLES or self._mesh.shares == self._group.size:
            return self._for_calls
        if self._for_samples is None:
            self._for_samples = self._group_of_samples()
        return self._for_samples

    @contextmanager
    def consensus(self, called: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._replicas_differ or any(model.period.under_way for model in self._models):
                with called_by_all(self, self._recorder, called):
                    pass  # all are here: a sum of parameters must not meet another's step
            for model in self._models:
                stack.enter_context(model.consensus())
            yield

    def meet(self) -> None:
        for model in self._models:
            model.meet()

    def restore(self, state: dict[str, Any]) -> dict[str, Any]:
        if self._members.waits:
            self.checkpoints.expect(state)
            self._members.enter(self.models, state)
        found = self.checkpoints.restore(state)
        for number, model in enumerate(self._models):
            model.restore_rank(self.checkpoints.replica(number))
            if model.cut is not None:
                model.cut.draw_alike()
        return found

    def save(self, state: dict[str, Any]) -> None:
        for model in self._models:
            model.period.refuse_save()
            for average in model.averages:
                average.refuse_applied("worker.save")
        self._members.require_others("worker.save")
        self._members.take_back()  # of an iteration that was left out, nothing is saved
        self._members.make(partial(self._save, state))

    def _save(self, state: dict[str, Any]) -> None:
        with self.consensus("save"):
            replicas = [model.rank_state() for model in self._models]
            updates_locally = any(model.period.updates for model in self._models)
            self.checkpoints.save(state, updates_locally=updates_locally, replicas=replicas)

    def finish(self) -> None:
        for model in self._models:
            model.finish()
        if self._saver is not None and (failure := self._saver.wait()):
            raise NotSaved(f"the last checkpoint could not be written: {failure}")

    def close(self) -> None:
        if self._hooks is not None:
            self._hooks.close()
        if self._watch is not None:
            self._watch.close()
        self.suspend()

    def _prepare_save(self) -> None:
        if self._saver is not None:
            updates_locally = any(model.period.updates for model in self._models)
            self._saver.prepare(self.checkpoints.expected(updates_locally=updates_locally))

    @property
    def _replicas_differ(self) -> bool:
        return self._group.size > 1 and not self._script.strategy.consistency.equal

    def _group_of_all(self) -> Group:
        """All workers, over connections of their own."""
        return self._group.divided([list(range(self._group.size))])

    def _group_of_samples(self) -> Group:
        """Workers that have samples of their own, over connections of their own: of those with the same ones, one."""
        return self._group.divided(self._mesh.with_samples)

    def _group_to_weigh(self) -> Group:
        several = self._group.size > 1
        return sure_call(self, self._recorder, "weigh", lambda _: self._group_of_samples() if several else self._group)

    def _saver_of(self, drafts: Drafts | None, saved: int = 0) -> GroupSaver | None:
        """Writes checkpoints of this group. saved: the step of the newest one of the group before."""
        saver = None if drafts is None else GroupSaver(drafts, self._group, self._recorder, self._gather_apart)
        if saver is not None:
            saver.begun = saver.saved = saved
        return saver

    def _gather_apart(self, value: Any) -> list[Any]:
        """Over the bulletin: a rank that saves while another is in a step must not mix with its exchange."""
        return self._group.bulletin.share(f"save-{next(self._gathered)}", value)

    def have_batch_norm(self) -> bool:
        return has_batch_norm(torch.nn.ModuleList(self.models))

    def _begin(self, generators: Any = None) -> int:
        self._members.require_joined()
        why = self.checkpoints.why_not_joined if self._share.total else "its loop reads its data itself"
        self._members.announce(self._group, self.models, self.checkpoints.names, why)
        named, models = self.checkpoints.expected_values, self._models
        return self._members.begin(generators, named, self._optimizers, models)

    def change(self, asked: FeedPosition) -> None:
        """A batch is about to be given out by this feed: others may follow these workers, if nothing is under way.

        Raises Stopped for who leaves.
        """
        self._members.fed()
        if not self.checkpoints.is_outermost(asked):
            return
        for model in self._models:
            if model.agreement.changing and not (model.period.under_way or model.gradients.under_way):
                model.agreement.change()

    def follow(self, generators: Any) -> int:
        if self._first is not None:
            self._first.begin(fed=True)
        self.checkpoints.begin_batch()
        for model in self._models:
            model.follow()
        return self._begin(generators)

    def _distribute(self, model: nn.Module, passes: int, summed: bool, early: Optimizer | None) -> None:
        if self._models and (self._replicas_differ or self._models[0].cut is not None):
            why = "workers' parameters differ" if self._replicas_differ else "workers hold parts of the first one"
            raise BadInput(
                f"worker.distribute was given a second model, or one again, and {why}; accepted: one model, once, as "
                "torch.nn.ModuleList([first, second])"
            )
        known = next((one for one in self._models if one.model is model), None)
        if known is not None:
            known.again(early)
            return
        if self._models:
            refuse_with_recovery(self._members, "two models (one may be both, as torch.nn.ModuleList([first, second]))")
        for name, parameter in named_parameters(model):
            if any(parameter in one for one in self._models):
                raise BadInput(
                    f"worker.distribute: {name} is a parameter of a model that is distributed already; accepted: both "
                    "models in one module, as torch.nn.ModuleList([first, second])"
                )
        model.to(self._device)
        # what models send goes beside each other and beside your own calls, and ranks must not mix it up
        apart = (self._models or early is not None) and self._group.size > 1
        group = self._group_of_all() if apart else self._group
        beside = self._group_of_all() if apart and early is not None else group
        state = self.checkpoints.strategy_state()
        one = LoopModel(model, self._run, group, passes, state, summed=summed, early=early, beside=beside)
        if one.cut is not None:
            self.checkpoints.hold(len(self._models), one.cut)
        one.restore_rank(self.checkpoints.replica(len(self._models)))
        self._models.append(one)
        if self._hooks is None:
            steps = LoopSteps(
                self._models,
                self._group,
                self._share,
                self._recorder,
                self._first,
                compare=self._script.compare_replicas,
                look=self._script.histograms,
                second=self._prepare_save,
            )
            self._hooks = OptimizerHooks(self._models, lambda: steps, self._recorder, strict=self._group.size > 1)
