"""Hooks on model and optimiser of a user's own loop over servers, which see where the loop is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from volary.errors import SettingError
from volary.train.own.model.losses import loss_of_backward

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from volary.train.own.served.model import ServedModel
    from volary.train.own.served.steps import ServedSteps
    from volary.train.recording.recorder import Recorder


class LoopHooks:
    """The hooks on models and optimisers. steps: returns the loop's steps; raises BadInput before the first batch."""

    def __init__(self, model: ServedModel, recorder: Recorder, steps: Callable[[], ServedSteps]) -> None:
        self._model, self._recorder, self._steps = model, recorder, steps
        self._hooks: list[RemovableHandle] = []
        for one in model.models:
            self._hooks += [
                one.register_forward_pre_hook(self._entering),
                one.register_forward_hook(self._computed),
            ]
        for optimizer in model.optimizers:
            self._hooks += [
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(lambda stepped, *_: steps().step(stepped)),
            ]

    def close(self) -> None:
        """Remove the hooks from models and optimisers."""
        for hook in self._hooks:
            hook.remove()

    def _entering(self, _model: nn.Module, _inputs: Any) -> None:
        # an evaluation between two steps is progress too, however long it takes
        if torch.is_grad_enabled():
            self._recorder.enter("forward")
        else:
            self._recorder.enter("evaluate")

    def _computed(self, _model: nn.Module, _inputs: Any, outputs: Any) -> None:
        if not torch.is_grad_enabled():
            self._recorder.enter("between steps")  # what follows is the user's own code
            return
        for one in tree_leaves(outputs):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(self._in_backward)

    def _in_backward(self, _: Tensor) -> None:
        """Backward comes to the model: nothing of it has a gradient yet."""
        loss = loss_of_backward()
        number = torch._C._current_graph_task_id()  # a model may have several outputs
        if self._steps().in_backward(number, None if loss is None else loss.item()):
            self._recorder.enter("backward")

    def _before(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1 or named:  # torch gives the optimiser itself as the first
            raise SettingError("optimizer.step(closure) cannot be distributed; call backward(), then step()")
        self._model.refuse_changed()
        self._recorder.enter("optimizer")
        if not self._steps().updates:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # servers update, or nobody does
