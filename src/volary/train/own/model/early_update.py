"""A user's optimiser whose updates happen as sums arrive, under the next forward: its rule and state, by slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError
from volary.train.served.server.own_optimizer import ELEMENTWISE, plain
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.rule import SliceOptimizer, SlicePart, state_as

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class EarlyUpdate:
    """See `volary.train.update.by_slices.UpdateBySlices`; where that can be, `optimizer.step()` itself finds nothing.

    trained: of the model, by name. settle: waits for all updates. The optimiser's settings, learning rates too, are
    followed at each step. Its state is with the slices, and in `optimizer.state_dict()`. sparse: the model has layers
    whose gradients hold a few rows only.
    """

    def __init__(
        self, optimizer: Optimizer, trained: Mapping[str, Tensor], settle: Callable[[], None], *, sparse: bool = False
    ) -> None:
        self._sparse = sparse
        self.optimizer, self._trained, self._settle = optimizer, trained, settle
        self._slices: list[SliceOptimizer] = []
        self._layout = self._laid_out()
        group_of = {one: number for number, group in enumerate(self._layout) for one in group}
        self._group_of = {name: group_of[id(one)] for name, one in trained.items() if id(one) in group_of}
        self._known: list[dict[str, Any]] = []  # settings that slices have
        self._hooks = [
            optimizer.register_state_dict_pre_hook(lambda _: self._bring()),
            optimizer.register_state_dict_post_hook(lambda *_: self._drop()),
            optimizer.register_load_state_dict_post_hook(lambda _: self._take()),
        ]

    @property
    def why_whole(self) -> str:
        """See `UpdateBySlices`."""
        kind = type(self.optimizer)
        known = kind.__name__ in ELEMENTWISE and kind is getattr(torch.optim, kind.__name__, None)
        if not known and not getattr(kind, "elementwise", False):
            return f"nothing says that {kind.__name__} updates each value on its own"
        if self._sparse:
            return "it has layers with sparse gradients, which are made of all values"
        missing = [name for name in self._trained if name not in self._group_of]
        return f"{missing[0]} is in no group of the optimiser" if missing else ""

    @property
    def in_slices(self) -> bool:
        """Whether sums are applied as they arrive."""
        return bool(self._slices)

    def divide(self, slices: Sequence[Sequence[SlicePart]]) -> None:
        """See `UpdateBySlices`."""
        state = self._state()
        self._slices = [
            SliceOptimizer(parts, partial(self._made, [part.name for part in parts]), elementwise=True, clip_value=None)
            for parts in slices
        ]
        self._known = []
        self._restore(state)

    def prepare(self, step: int) -> None:
        """`follow` does, once the user's code has set what it wants."""

    def follow(self) -> None:
        """Take over the optimiser's settings as they are now. Raises SettingError if it has other parameters."""
        if self._laid_out() != self._layout:
            raise SettingError(
                f"{type(self.optimizer).__name__} has other parameters or groups than before; accepted with "
                "early_update: worker.distribute(model, optimizer) again after such a change"
            )
        settings = [plain(group) for group in self.optimizer.param_groups]
        if settings == self._known:
            return
        self._known = settings
        for one in self._slices:
            numbers = self._groups([part.name for part in one.parts])
            for group, number in zip(one.optimizer.param_groups, numbers, strict=True):
                group.update(settings[number])
            one.rates = [float(settings[number]["lr"]) for number in numbers]

    def apply_slice(self, number: int, sums: Sequence[Tensor | None], scale: float = 1.0) -> None:
        """See `UpdateBySlices`."""
        self._slices[number].take(sums, scale)
        self._slices[number].step(1.0, _quietly)

    def close(self) -> None:
        """Give the optimiser its state back; all updates are done."""
        for hook in self._hooks:
            hook.remove()
        self._bring_state(self._state())
        self._slices = []

    def _laid_out(self) -> list[list[int]]:
        return [[id(one) for one in group["params"]] for group in self.optimizer.param_groups]

    def _groups(self, names: Sequence[str]) -> list[int]:
        return sorted({self._group_of[name] for name in names})

    def _made(self, names: Sequence[str], tensors: list[Tensor]) -> Optimizer:
        groups = []
        for number in self._groups(names):
            own = [one for one, name in zip(tensors, names, strict=True) if self._group_of[name] == number]
            groups.append({**self.optimizer.param_groups[number], "params": own})
        made: Any = type(self.optimizer)
        optimizer: Optimizer = made(groups)
        return optimizer

    def _state(self) -> OptimizerState:
        if self._slices:
            return OptimizerState(part for one in self._slices for part in one.state())
        whole = [SlicePart(name, 0, one.numel(), one) for name, one in self._trained.items()]
        own = SliceOptimizer(whole, lambda _: self.optimizer, elementwise=True, clip_value=None)
        return OptimizerState(own.state())

    def _restore(self, state: OptimizerState) -> None:
        for one in self._slices:
            one.restore(state)
        self._drop()

    def _bring(self) -> None:
        if self._slices:
            self._settle()
            self._bring_state(self._state())

    def _bring_state(self, state: OptimizerState) -> None:
        for name, parameter in self._trained.items():
            part = state.of(name, 0, parameter.numel())
            if part.each or part.whole:
                self.optimizer.state[parameter] = state_as(part, parameter.detach())

    def _drop(self) -> None:
        if self._slices:
            for parameter in self._trained.values():
                self.optimizer.state.pop(parameter, None)

    def _take(self) -> None:
        if self._slices:
            self._settle()
            slices, self._slices = self._slices, []
            state = self._state()  # as it was loaded
            self._slices, self._known = slices, []
            self._restore(state)


def _quietly(optimizer: Optimizer) -> None:
    """A step of a slice, of which hooks on optimisers hear nothing."""
    type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]  # of functools.wraps
