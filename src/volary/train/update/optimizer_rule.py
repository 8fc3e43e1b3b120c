"""The update rule that is an optimiser of each slice: of a worker's own parameters, and of those that servers keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from volary.exchange.gradients.plan import in_memory_order, laid_out_as
from volary.train.factors.by_name import LR_FACTOR
from volary.train.state.part_state import PartState
from volary.train.update.averaging import Averages
from volary.train.update.held_parameters import parameters_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.server.update_rule import SliceUpdate
    from volary.sharding.ranges import Range
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.averaging import Averaging

COUNTER = "step"  # torch's optimisers count a parameter's updates under this name; all else that is a tensor is values


class SliceOptimizer:
    """The optimiser of one slice: parts of some parameters, or all parameters of a network, each whole.

    parts: their values, (size,), or in the parameter's shape if they are all of it, in the parameter's memory.
    build: an optimiser of given tensors. elementwise: its rule updates each value by its own gradient and state alone;
    only then a part may be less than its parameter. clip_value: bound of each gradient value.
    """

    def __init__(
        self,
        parts: Mapping[Range, Tensor],
        build: Callable[[list[Tensor]], Optimizer],
        elementwise: bool,
        clip_value: float | None,
    ) -> None:
        self.parts, self._elementwise, self._clip_value = parts, elementwise, clip_value
        self._values = list(parts.values())
        self.optimizer, self._build = build(self._values), build
        self._begins_with_state = bool(self.optimizer.state)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]  # before any schedule
        self.averages = Averages()

    def change_rate(self, lr: float) -> None:
        """Set the learning rate before any schedule to `lr`."""
        self.rates = [lr] * len(self.rates)

    def move(self, values: Sequence[Tensor]) -> None:
        """Update these values from now on, which are as many; (n,) of each part, in the order in memory."""
        for tensor, moved in zip(self._values, values, strict=True):
            if moved is not tensor:  # one that only shares its memory has no version in common with the parameter
                tensor.data = _shaped_as(tensor, moved)

    def norm(self, gradients: Sequence[Tensor | None], scale: float, kind: float) -> float:
        """The norm of sums, times `scale`, once their values are clipped; of that `kind` as in torch."""
        bound = self._clip_value
        found = [one for one in gradients if one is not None]
        if bound is not None:
            found, scale = [(one * scale).clamp_(-bound, bound) for one in found], 1.0
        norms = [torch.linalg.vector_norm(one, kind) for one in found]
        return abs(scale) * float(torch.linalg.vector_norm(torch.stack(norms), kind)) if norms else 0.0

    def take(
        self, gradients: Sequence[Tensor | None], scale: float = 1.0, clip: float = 1.0, *, in_place: bool = False
    ) -> None:
        """The sums that the next step is made of; see `volary.server.update_rule.SliceUpdate`.

        scale: factor of the sums. clip: of what their clipped values are. in_place: they may be written to.
        """
        bound = self._clip_value
        if bound is None:
            scale, clip = scale * clip, 1.0
        taken = [
            one if one is None or one.shape == values.shape else laid_out_as(values, one)  # a call each is felt
            for values, one in zip(self._values, gradients, strict=True)
        ]
        own = [gradient for gradient in taken if gradient is not None]
        if own and (scale != 1.0 or bound is not None):
            if in_place:
                torch._foreach_mul_(own, scale)
            else:
                own = list(torch._foreach_mul(own, scale))
        if bound is not None:
            for gradient in own:
                gradient.clamp_(-bound, bound)
        if own and clip != 1.0:
            torch._foreach_mul_(own, clip)
        changed = iter(own)
        each = own if len(own) == len(taken) else [None if one is None else next(changed) for one in taken]
        for values, agreed in zip(self._values, each, strict=True):
            values.grad = agreed

    def step(self, factor: float, by: Callable[[Optimizer], object] | None = None) -> None:
        """Update by the gradients that were taken, and let go of them.

        factor: of the learning rate. by: lets the optimiser take its step, or not; None: it does.
        """
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor * group.get(LR_FACTOR, 1.0)
        if by is None:
            self.optimizer.step()
        else:
            by(self.optimizer)
        self.clear()

    def average(self, averaging: Averaging, update: SliceUpdate) -> None:
        """Let the values as they are after an update enter their averages."""
        self.averages.take(self._values, averaging, update)

    def swap_averages(self) -> None:
        """Let values and their averages change places, where there are some."""
        self.averages.swap(self._values)

    def clear(self) -> None:
        """Drop the gradients of the slice's parts."""
        for values in self._values:
            values.grad = None

    def state(self, *, copied: bool = True) -> list[PartState]:
        """The optimiser's state, by part. copied: False: in the optimiser's own memory, as far as that goes."""
        each = enumerate(self.parts.items())
        return [self._state_of(place, part, values, copied=copied) for place, (part, values) in each]

    def restore(self, state: OptimizerState, *, copied: bool = True) -> None:
        """Go on from what was remembered of these parts, however they were cut then.

        copied: False: in the memory of `state`, as far as that goes.
        """
        own = parameters_of(self.optimizer)
        numbers = {id(tensor): number for number, tensor in enumerate(own)}
        entries = {
            numbers[id(values)]: state_as(state.of(part, copied=copied), values) for part, values in self.parts.items()
        }
        for place, values in enumerate(self._values):
            self.averages.restore(place, entries[numbers[id(values)]])
        if self._begins_with_state and not all(entries.values()):  # some were not updated before, as they were frozen
            fresh = self._build(self._values).state
            entries = {number: one or dict(fresh[own[number]]) for number, one in entries.items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": {n: one for n, one in entries.items() if one}, "param_groups": groups})
        for number, found in entries.items():
            for key, entry in found.items():
                if isinstance(entry, torch.Tensor) and entry.ndim == 0:  # which torch gives its parameter's type
                    self.optimizer.state[own[number]][key] = entry

    def _state_of(self, place: int, part: Range, values: Tensor, *, copied: bool) -> PartState:
        each, whole = dict[str, torch.Tensor](), dict[str, Any]()
        for key, entry in self.optimizer.state.get(values, {}).items():
            if not isinstance(entry, torch.Tensor):
                whole[key] = list(entry) if isinstance(entry, list) else entry  # the next step may make it longer
            elif self._elementwise and key != COUNTER and entry.shape == values.shape:
                if copied or entry.stride() != values.stride():
                    entry = torch.empty_like(values, dtype=entry.dtype, requires_grad=False).copy_(entry)
                each[key] = in_memory_order(entry)
            else:
                whole[key] = entry.clone()
        averages, entered = self.averages.state(place, copied=copied)
        return PartState(part, {**each, **averages}, {**whole, **entered})


class Updating(Protocol):
    """Says which optimiser is used, and how it takes its steps; see `SliceOptimizer`."""

    @property
    def elementwise(self) -> bool:
        """Whether each value is updated by its own gradient and state alone."""
        ...

    @property
    def clip_value(self) -> float | None:
        """The largest magnitude that a value of a gradient may have; None: any."""
        ...

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """Return a function that makes the optimiser of the parameters, or parts of them, with these names."""
        ...

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take a step with the gradients that were taken."""
        ...


class OptimizerRule:
    """See `volary.server.update_rule.UpdateRule`. Of `slices`, by number: values of parts, see
    `SliceOptimizer`.

    state: what is remembered of them, and goes on in its memory, as far as that goes.
    """

    def __init__(
        self,
        slices: Mapping[int, Mapping[Range, Tensor]],
        updating: Updating,
        state: OptimizerState | None = None,
        *,
        changes_sums: bool = False,
    ) -> None:
        self._updating, self.changes_sums = updating, changes_sums
        self.optimizers: dict[int, SliceOptimizer] = {}
        for number, parts in slices.items():  # one after the other: an optimiser may begin with memory of its own
            build = updating.build([part.name for part in parts])
            one = SliceOptimizer(parts, build, updating.elementwise, updating.clip_value)
            if state is not None:
                one.restore(state, copied=False)
            self.optimizers[number] = one

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Let the slice's optimiser take a step; parts that nobody used stay as they are."""
        one = self.optimizers[number]
        one.move(values)
        one.take(update.sums, update.scale, update.clip, in_place=self.changes_sums)
        self._updating.step(one, update)

    def norm(self, number: int, update: SliceUpdate, kind: float) -> float:
        """The norm of a slice's gradient before `apply` clips it by that of all; 0 of a slice without an optimiser."""
        one = self.optimizers.get(number)
        return 0.0 if one is None else one.norm(update.sums, update.scale, kind)

    def state(self, number: int, *, copied: bool = True) -> list[PartState]:
        """The optimiser's state of each part. copied: see `SliceOptimizer.state`."""
        return self.optimizers[number].state(copied=copied)

    def restore(self, number: int, state: OptimizerState) -> None:
        """Go on from there, however it was cut."""
        self.optimizers[number].restore(state)


def _shaped_as(part: Tensor, values: Tensor) -> Tensor:
    return values if values.shape == part.shape else laid_out_as(part, values)


def state_as(state: PartState, values: Tensor) -> dict[str, Any]:
    """A part's entries in the shape of its values and in their order in memory; what other parts have too in copies.

    torch's fused rules read values and their state as flat runs, each in its own order.
    """
    entries: dict[str, Any] = {key: laid_out_as(values, entry) for key, entry in state.each.items()}
    for key, entry in state.whole.items():
        if isinstance(entry, torch.Tensor) and entry.shape == values.shape and entry.stride() != values.stride():
            entries[key] = torch.empty_like(values, dtype=entry.dtype, requires_grad=False).copy_(entry)
        else:
            entries[key] = entry.clone() if isinstance(entry, torch.Tensor) else entry
    return entries
