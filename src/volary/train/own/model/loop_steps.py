"""The steps of a user's own loop: `optimizer.step()` ends them, whichever optimiser it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from volary.comm.groups.blocking import add_up
from volary.errors import BadInput, Stopped
from volary.train.own.model.loop_histograms import LoopHistograms
from volary.train.replica import record_step

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.session.values.period import Period
    from volary.train.own.first_steps import FirstSteps
    from volary.train.own.model.loop_model import LoopModel
    from volary.train.own.model.share import Share
    from volary.train.recording.recorder import Recorder


class LoopSteps:
    """Sees every step of every torch optimiser in this process, and cares for those of distributed models.

    Steps of the run are those of the first optimiser that steps; another takes over if it steps twice without it.
    first: looks at the first of them. compare: how often replicas are compared. look: how often rank 0 looks at
    weights, gradients and updates.
    """

    def __init__(
        self,
        models: Sequence[LoopModel],
        group: Group,
        share: Share,
        recorder: Recorder,
        first: FirstSteps | None,
        *,
        compare: Period,
        look: Period,
    ) -> None:
        self._compare, self._look = compare, look
        self._histograms = LoopHistograms(models, recorder) if group.leads else None
        self._models, self._group, self._share, self._recorder = models, group, share, recorder
        self._first = first
        self._lead: Optimizer | None = None
        self._others = set[int]()  # that have stepped since the first did
        self._under_way: list[Optimizer] = []  # an optimiser may call another's step
        self._hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def close(self) -> None:
        """Remove the hooks on the optimiser."""
        for hook in self._hooks:
            hook.remove()

    def _of(self, optimizer: Optimizer) -> list[LoopModel]:
        """The models that it updates. Raises BadInput if it has parameters beside theirs."""
        parameters = {id(one): one for group in optimizer.param_groups for one in group["params"]}
        found = [model for model in self._models if not model.contents.ids.isdisjoint(parameters)]
        strange: Set[int] = parameters.keys() if found and self._group.size > 1 else set()
        for model in found:
            strange = strange - model.contents.ids
        if strange:
            shape = next(tuple(one.shape) for number, one in parameters.items() if number in strange)
            raise BadInput(
                f"{type(optimizer).__name__} holds a parameter of shape {shape} that no distributed model has, so that "
                "workers would not agree on it; accepted: parameters of models that worker.distribute was given, each "
                "in a module"
            )
        return found

    def _before(
        self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        for model in self._models:
            model.refuse_changed()
        models = self._of(optimizer)
        if not models:
            return None
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        self._done_with(optimizer)  # with a step that has raised
        for model in models:
            model.before(optimizer, closing=closure is not None, top_level=not self._under_way)
        if self._histograms is not None:
            step = self._recorder.step + (self._lead is None or optimizer is self._lead)  # the lead ends a step
            self._histograms.before(optimizer, step if self._ends(self._look, step) else None)
        self._under_way.append(optimizer)
        self._recorder.enter("optimizer")
        return None if closure is None else ((optimizer, self._agreeing(closure, models[0])), {})

    def _agreeing(self, closure: Callable[[], Any], model: LoopModel) -> Callable[[], Any]:
        """The closure, with the loss of all workers: what the optimiser does next must not differ between them."""

        def called() -> Any:
            loss = closure()
            if loss is None or self._group.size == 1:
                return loss
            weight, whole = model.weight(), torch.as_tensor(loss).detach().clone()
            whole = whole * weight if weight else torch.zeros_like(whole)  # it may be no number where nothing counts
            add_up(whole, self._group)
            return whole if isinstance(loss, torch.Tensor) else whole.item()

        return called

    def _after(self, optimizer: Optimizer, _arguments: tuple[Any, ...], _named: dict[str, Any]) -> None:
        models = self._of(optimizer)
        if not models:
            return
        self._done_with(optimizer)
        top_level = not self._under_way
        for model in models:
            model.after(optimizer, top_level=top_level)
        leads = top_level and self._leads(optimizer)
        if leads:
            self._end_step(optimizer, models)
        if self._histograms is not None:
            self._histograms.after(optimizer, late=any(model.updates_on_arrival for model in models))
        if not leads:
            return
        for model in self._models if self._ends(self._compare, self._recorder.step) else ():
            model.compare(self._recorder.step)
        if any(model.agreement.ending for model in models):
            raise Stopped("the run was asked to end after this step")

    def _end_step(self, optimizer: Optimizer, models: Sequence[LoopModel]) -> None:
        if self._first is not None:
            self._first.end(models[0].loss.own)
        losses = [model.loss.take() for model in self._models]
        record_step(
            self._recorder,
            *(model.strategy for model in self._models),
            epoch=self._share.epoch,
            samples=self._share.samples,
            loss=losses[self._models.index(models[0])],
            lr=float(optimizer.param_groups[0]["lr"]),
        )

    def _ends(self, period: Period, step: int) -> bool:
        """Whether the period ends with this step, whose batch is the newest."""
        if period.unit == "epochs":
            return self._share.ends_epoch and round(self._share.epoch) % period.count == 0
        return period.ends(step, 1)

    def _done_with(self, optimizer: Optimizer) -> None:
        while any(one is optimizer for one in self._under_way):
            self._under_way.pop()

    def _leads(self, optimizer: Optimizer) -> bool:
        if self._lead is None or id(optimizer) in self._others:
            self._lead = optimizer
        if optimizer is not self._lead:
            self._others.add(id(optimizer))
            return False
        self._others.clear()
        return True
