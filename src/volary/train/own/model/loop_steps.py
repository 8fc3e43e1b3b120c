"""The steps of a user's own loop whose workers have all parameters: `optimizer.step()` ends them, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups.blocking import add_up
from volary.errors import Stopped
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
    """See `volary.train.own.hooks.HookedSteps`.

    Steps of the run are those of the first optimiser that steps; another takes over if it steps twice without it.
    first: looks at the first of them. compare: how often replicas are compared. look: how often rank 0 looks at
    weights, gradients and updates. second: called after the second of this attempt: optimisers have all their state.
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
        second: Callable[[], object],
    ) -> None:
        self._second, self._count = second, 0
        self._compare, self._look = compare, look
        self._histograms = LoopHistograms(models, recorder) if recorder.leads else None
        self._models, self._share, self._recorder = models, share, recorder
        self._first = first
        self._lead: Optimizer | None = None
        self._others = set[int]()  # that have stepped since the first did

    def before(self, optimizer: Optimizer, models: Sequence[LoopModel], *, closing: bool, top_level: bool) -> None:
        """Models agree on gradients; histograms see parameters as these were computed with. Raises SettingError."""
        for model in models:
            model.before(optimizer, closing=closing, top_level=top_level)
        if self._histograms is not None:
            step = self._recorder.step + (self._lead is None or optimizer is self._lead)  # the lead ends a step
            self._histograms.before(optimizer, step if self._ends(self._look, step) else None)

    def after(self, optimizer: Optimizer, models: Sequence[LoopModel], *, top_level: bool) -> None:
        """Models note it, and the lead ends a step of the run. Raises RanksDiffer, Stopped."""
        for model in models:
            model.after(optimizer, top_level=top_level)
        leads = top_level and self._leads(optimizer) and not any(model.gradients.left_out for model in models)
        if leads:
            self._end_step(optimizer, models)
        if self._histograms is not None:
            self._histograms.after(optimizer, late=any(model.updates_on_arrival for model in models))
        if not leads:
            return
        for model in self._models if self._ends(self._compare, self._recorder.step) else ():
            model.compare(self._recorder.step)
        self._count += 1
        if self._count == 2:
            self._second()
        for model in models:
            if model.agreement.changing and not (model.period.under_way or self._share.total):  # else before a batch
                model.agreement.change()
        if any(model.agreement.ending for model in models):
            raise Stopped("the run was asked to end after this step")

    def whole_loss(self, loss: Any, models: Sequence[LoopModel]) -> Any:
        """The optimiser's next step must not differ between workers."""
        group = models[0].replicas
        if loss is None or group.size == 1:
            return loss
        weight, whole = models[0].weight(), torch.as_tensor(loss).detach().clone()
        whole = whole * weight if weight else torch.zeros_like(whole)  # it may be no number where nothing counts
        add_up(whole, group)
        return whole if isinstance(loss, torch.Tensor) else whole.item()

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

    def _leads(self, optimizer: Optimizer) -> bool:
        if self._lead is None or id(optimizer) in self._others:
            self._lead = optimizer
        if optimizer is not self._lead:
            self._others.add(id(optimizer))
            return False
        self._others.clear()
        return True
