"""The hooks of a user's own loop, which see where it is: forward, backward, and the steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from volary.errors import BadInput
from volary.exchange.gradients.accumulation_hooks import before_bucket
from volary.train.own.given import refuse_wrapped
from volary.train.update.held_parameters import ids_of, parameters_of

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from volary.train.own.model.contents import Contents
    from volary.train.recording.recorder import Recorder


class HookedModel(Protocol):
    """A distributed model, or all of them as one network."""

    @property
    def contents(self) -> Contents:
        """The tensors that it held when it was distributed last."""
        ...

    def refuse_changed(self) -> None:
        """Raise SettingError if the model is another than workers have agreed on."""
        ...


Model = TypeVar("Model", bound=HookedModel, contravariant=True)


class HookedSteps(Protocol[Model]):
    """Does what follows from a step of an optimiser of distributed models. top_level: no other has called it."""

    def before(self, optimizer: Optimizer, models: Sequence[Model], *, closing: bool, top_level: bool) -> None:
        """The optimiser is about to update `models`. closing: it calls backward itself. Raises SettingError."""
        ...

    def after(self, optimizer: Optimizer, models: Sequence[Model], *, top_level: bool) -> None:
        """The optimiser has stepped. Raises BadInput, Stopped when the run ends, and what a coordinator raises."""
        ...

    def whole_loss(self, loss: Any, models: Sequence[Model]) -> Any:
        """The loss of all workers, given what an optimiser's closure returned: it may go by that."""
        ...


Hooked = TypeVar("Hooked", bound=HookedModel)


class OptimizerHooks(Generic[Hooked]):
    """Sees every step of every torch optimiser in this process, and cares for those of `models`.

    steps: returns what does; raises BadInput before the first batch. strict: refuses an optimiser that also holds
    parameters which no model has.
    """

    def __init__(
        self, models: Sequence[Hooked], steps: Callable[[], HookedSteps[Hooked]], recorder: Recorder, *, strict: bool
    ) -> None:
        self._models, self._steps, self._recorder, self._strict = models, steps, recorder, strict
        self._under_way: list[tuple[Optimizer, list[Hooked]]] = []  # an optimiser may call another's step
        self._stepped = False
        self._hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def close(self) -> None:
        """Remove the hooks on optimisers."""
        for hook in self._hooks:
            hook.remove()

    def _of(self, optimizer: Optimizer) -> list[Hooked]:
        """The models that it updates. Raises BadInput if it has parameters beside theirs."""
        held = ids_of(optimizer)
        found = [model for model in self._models if not model.contents.ids.isdisjoint(held)]
        strange = held if found and self._strict else set()
        for model in found:
            strange = strange - model.contents.ids
        if strange:
            shape = next(tuple(one.shape) for one in parameters_of(optimizer) if id(one) in strange)
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
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)  # torch gives the optimiser first
        if not self._stepped:
            self._stepped = True
            refuse_wrapped({number for model in self._models for number in model.contents.ids})
        self._done_with(optimizer)  # with a step that has raised
        self._steps().before(optimizer, models, closing=closure is not None, top_level=not self._under_way)
        self._under_way.append((optimizer, models))
        self._recorder.enter("optimizer")
        if closure is None:
            return None
        return (optimizer, lambda: self._steps().whole_loss(closure(), models)), {}

    def _after(self, optimizer: Optimizer, _arguments: tuple[Any, ...], _named: dict[str, Any]) -> None:
        if models := self._done_with(optimizer):
            self._steps().after(optimizer, models, top_level=not self._under_way)

    def _done_with(self, optimizer: Optimizer) -> list[Hooked]:
        """Let go of its step and of all that it has called; the models that it updates, of a step under way."""
        models: list[Hooked] = []
        while any(one is optimizer for one, _ in self._under_way):
            models = self._under_way.pop()[1]
        return models


class PassHooks:
    """Sees forward and backward passes of models, where nothing may have a gradient before it is known that one comes.

    entering: called before each forward that may be trained on. reached: called by each output of a model that backward
    comes to, and by each of the `trained` parameters, as a loop may call a part of its model; with autograd's number of
    the backward pass.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        trained: Sequence[nn.Parameter],
        recorder: Recorder,
        entering: Callable[[], None],
        reached: Callable[[int], None],
    ) -> None:
        self._recorder, self._entering, self._reached = recorder, entering, reached
        self._hooks: list[RemovableHandle] = [before_bucket(one, self._in_backward) for one in trained]
        for one in (part for model in models for part in _called(model)):
            self._hooks += [one.register_forward_pre_hook(self._enter), one.register_forward_hook(self._computed)]

    def close(self) -> None:
        """Remove the hooks from the models."""
        for hook in self._hooks:
            hook.remove()

    def _enter(self, _model: nn.Module, _inputs: Any) -> None:
        if torch.is_grad_enabled():
            self._entering()
            self._recorder.enter("forward")
        else:  # between two steps that is progress too, however long it takes
            self._recorder.enter("evaluate")

    def _computed(self, _model: nn.Module, _inputs: Any, outputs: Any) -> None:
        if not torch.is_grad_enabled():
            self._recorder.enter("between steps")  # what follows is the user's own code
            return
        for one in tree_leaves(outputs):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(self._in_backward)

    def _in_backward(self, _: Tensor) -> None:
        self._reached(torch._C._current_graph_task_id())  # a model may have several outputs


def _called(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model; of a list or dictionary of modules, which has no forward, those that it holds."""
    if isinstance(model, torch.nn.ModuleList | torch.nn.ModuleDict):
        for part in model.children():
            yield from _called(part)
    else:
        yield model
