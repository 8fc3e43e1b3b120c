"""An optimiser of a user's own that updates a worker's part of a network: its state, in parts and whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError
from volary.sharding.ranges import Range
from volary.train.own.parts.whole_tensors import part_of
from volary.train.served.server.loop_optimizer import is_elementwise
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.optimizer_rule import SliceOptimizer, state_as

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.train.own.parts.whole_tensors import WholeTensors


class CutOptimizer:
    """Its parameters are this worker's parts from now on; what it remembers of them is cut with them.

    names: of the network's parameters, by id. `state_dict()` is of whole parameters, and a collective call;
    `load_state_dict()` takes whole ones. Raises SettingError for an optimiser that needs whole parameters to update
    them.
    """

    def __init__(self, optimizer: Optimizer, names: Mapping[int, str], tensors: WholeTensors) -> None:
        if not is_elementwise(optimizer):
            raise SettingError(
                f"nothing says that {type(optimizer).__name__} updates each value on its own, and workers have parts "
                "of parameters; accepted: an elementwise one, as SGD or Adam, one of your own whose class says "
                "elementwise = True, or partition=data"
            )
        self.optimizer, self._names, self._tensors, self._in_parts = optimizer, names, tensors, False
        for parameter, entries in optimizer.state.items():
            entries.update(self._cut(parameter, entries))
        self._hooks = [
            optimizer.register_state_dict_post_hook(self._read),
            optimizer.register_load_state_dict_pre_hook(self._load),
        ]

    def settings(self) -> dict[str, Any]:
        """Its `state_dict()` without what it remembers of parameters: the same on all workers."""
        with self._of_parts():
            return {**self.optimizer.state_dict(), "state": {}}

    def state(self) -> OptimizerState:
        """Its state of this worker's parts, as of tensors of their own."""
        return state_of(self.optimizer, self._names)

    def close(self) -> None:
        """Let go of the optimiser."""
        for hook in self._hooks:
            hook.remove()

    def _cut(self, parameter: Tensor, entries: Mapping[str, Any]) -> dict[str, Any]:
        block = self._tensors.own.get(self._names.get(id(parameter), ""))
        return {key: entry if block is None else part_of(entry, block) for key, entry in entries.items()}

    @contextmanager
    def _of_parts(self) -> Iterator[None]:
        self._in_parts = True
        try:
            yield
        finally:
            self._in_parts = False

    def _load(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        own = _parameters(optimizer)
        cut = {number: self._cut(own[number], entries) for number, entries in state["state"].items()}
        return {**state, "state": cut}

    def _read(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any] | None:
        if self._in_parts:
            return None
        places, parts = [], []
        for number, entries in state["state"].items():
            name = self._names.get(id(_parameters(optimizer)[number]), "")
            block = self._tensors.own.get(name)
            if block is None:
                continue
            for key, entry in entries.items():
                if isinstance(entry, torch.Tensor) and entry.shape == block.own_shape:
                    places.append((number, key))
                    parts.append((name, entry))
        found = {number: dict(entries) for number, entries in state["state"].items()}
        for (number, key), tensor in zip(places, self._tensors.whole(parts), strict=True):
            found[number][key] = tensor
        return {**state, "state": found}


def state_of(optimizer: Optimizer, names: Mapping[int, str]) -> OptimizerState:
    """The state of parameters in an elementwise optimiser, each as it is here. names: by id."""
    parts = {Range(names[id(one)], 0, one.numel()): one for one in _parameters(optimizer) if id(one) in names}
    return OptimizerState(SliceOptimizer(parts, lambda _: optimizer, elementwise=True, clip_value=None).state())


def take_up(optimizer: Optimizer, settings: Any, state: OptimizerState, names: Mapping[int, str]) -> None:
    """Let an optimiser go on from what `CutOptimizer` has of another: its settings, and what that remembered."""
    optimizer.load_state_dict(settings)
    for one in _parameters(optimizer):
        part = state.of(Range(names[id(one)], 0, one.numel())) if id(one) in names else None
        if part is not None and (part.each or part.whole):
            optimizer.state[one] = state_as(part, one.detach())


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    """All of them, as torch numbers them."""
    return [one for group in optimizer.param_groups for one in group["params"]]
