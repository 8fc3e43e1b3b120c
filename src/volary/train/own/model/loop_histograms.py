"""Histograms of weights, gradients and updates in a user's own loop: what each step of an optimiser changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.naming import named_parameters
from volary.train.recording.histograms import HistogramBudget, UpdateHistograms
from volary.train.update.held_parameters import ids_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.train.own.model.loop_model import LoopModel
    from volary.train.recording.recorder import Recorder


class LoopHistograms:
    """Histograms of the parameters of `models` that an optimiser holds, before and after its step, on one worker.

    Gradients are as the optimiser had them: the mean over all workers, clipped and unscaled. Where updates come later
    there are none, and what a step has changed is here when the next one is about to.
    """

    def __init__(self, models: Sequence[LoopModel], recorder: Recorder) -> None:
        self._models, self._recorder, self._budget = models, recorder, HistogramBudget()
        self._measured: dict[int, UpdateHistograms] = {}  # by optimiser
        self._step = 0  # the newest that was measured

    def before(self, optimizer: Optimizer, step: int | None) -> None:
        """The optimiser is about to step; parameters are as gradients were computed with.

        step: that of the run, if it is one to measure. All of its optimisers are measured, or none.
        """
        if (late := self._measured.pop(id(optimizer), None)) is not None:
            with self._budget:
                late.write(self._recorder)
        if step is not None and (step == self._step or not self._budget.spent):
            self._step = step
            with self._budget:
                self._measured[id(optimizer)] = UpdateHistograms(self._named(optimizer))

    def after(self, optimizer: Optimizer, *, late: bool) -> None:
        """Note that `optimizer` has stepped, after the run's step if it ends one. late: parameters change later."""
        if late:
            return
        if (measured := self._measured.pop(id(optimizer), None)) is not None:
            with self._budget:
                for name, parameter in self._named(optimizer):
                    if parameter.grad is not None:
                        measured.add_gradient(name, parameter.grad)
                measured.write(self._recorder)

    def _named(self, optimizer: Optimizer) -> list[tuple[str, Tensor]]:
        """The parameters that it updates, by name; where there are several models with the model's place before it."""
        held = ids_of(optimizer)
        return [
            (name if len(self._models) == 1 else f"{place}.{name}", parameter)
            for place, model in enumerate(self._models)
            for name, parameter in named_parameters(model.model)
            if id(parameter) in held and parameter.requires_grad
        ]
