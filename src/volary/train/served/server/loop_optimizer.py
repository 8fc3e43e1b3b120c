"""The optimisers of a loop of one's own, as servers have them: types and settings by group, and who is in which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from volary.errors import BadInput
from volary.train.averages.ema import Ema
from volary.train.update.averaging import Averaging

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.server.update_rule import SliceUpdate
    from volary.sharding.ranges import Range
    from volary.train.update.optimizer_rule import SliceOptimizer

ELEMENTWISE = {"ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
KINDS = ELEMENTWISE | {"Adafactor", "Muon"}  # these are given whole parameters


def is_elementwise(optimizer: Optimizer) -> bool:
    """Whether it is known to update each value by its own gradient and state alone, as a class of a user's may say."""
    kind = type(optimizer)
    known = kind.__name__ in ELEMENTWISE and kind is getattr(torch.optim, kind.__name__, None)
    return known or bool(getattr(kind, "elementwise", False))


class LoopOptimizer(msgspec.Struct, frozen=True):
    """kinds: a class of torch.optim, by group. groups: the settings. group_of: the group of each parameter, by name.

    decay: of the average that is kept of what it updates; None: none is.
    """

    kinds: list[str]
    groups: list[dict[str, Any]]
    group_of: dict[str, int]
    decay: float | None = None

    @classmethod
    def of(cls, optimizers: Sequence[Optimizer], trained: Mapping[str, Tensor]) -> LoopOptimizer:
        """Describe a worker's own optimisers of trained parameters. Raises BadInput if servers cannot have them.

        The groups of one follow those of the one before.
        """
        kinds = {type(one): one for one in optimizers}
        for kind, optimizer in kinds.items():
            if kind.__name__ not in KINDS or kind is not getattr(torch.optim, kind.__name__, None):
                accepted = f"torch.optim's {', '.join(sorted(KINDS))}"
                raise BadInput(f"servers cannot have the optimiser {kind.__name__}; accepted: {accepted}")
            if any(one.get("step", 1) > 0 for one in optimizer.state.values()):  # Adagrad has a state from the first
                raise BadInput(
                    "the optimiser has taken steps before worker.distribute; accepted with servers: a new one"
                )
        names = {id(parameter): name for name, parameter in trained.items()}
        group_of: dict[str, int] = {}
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        of_each = [type(optimizer).__name__ for optimizer in optimizers for _ in optimizer.param_groups]
        for number, group in enumerate(groups):
            for parameter in group["params"]:
                name = names.get(id(parameter))
                if name is None:
                    raise BadInput(
                        "the optimiser has a parameter that is none of the model's trained ones; accepted with "
                        "servers: those that model.parameters() gives"
                    )
                if name in group_of:
                    raise BadInput(
                        f"two optimisers update {name}; accepted with servers: each parameter in one of them"
                    )
                group_of[name] = number
        if missing := [name for name in trained if name not in group_of]:
            raise BadInput(
                f"{missing[0]} is trained and in no group of the optimiser; accepted with servers: all trained "
                "parameters in the optimiser that is distributed, or requires_grad=False"
            )
        return cls(of_each, [plain(group) for group in groups], group_of)

    @property
    def elementwise(self) -> bool:
        """Whether each value is updated by its own gradient and state alone."""
        return ELEMENTWISE.issuperset(self.kinds)

    @property
    def clip_value(self) -> None:
        return

    @property
    def averaging(self) -> Averaging | None:
        """The average of what it updates, after each update, if one is kept."""
        if self.decay is None:
            return None
        return Averaging(Ema(decay=self.decay, evaluate=True), 1, attrgetter("samples"), used_alone=True)

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """Return a function that makes the optimiser of the parameters, or parts of them, with these names."""

        def made(tensors: list[Tensor]) -> Optimizer:
            found = by_group(self.group_of, names, tensors)
            optimizers = []
            for kind, numbers in groupby(found, lambda number: self.kinds[number]):
                settings = [(number, self.groups[number].items()) for number in numbers]
                groups = [{"params": found[n], **{key: _as_given(one) for key, one in own}} for n, own in settings]
                optimizers.append(getattr(torch.optim, kind)(groups))
            return optimizers[0] if len(optimizers) == 1 else OptimizersAsOne(optimizers)

        return made

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take a step, with the learning rates that workers had."""
        if update.rates:
            one.rates = [update.rates[number] for number in groups_among(self.group_of, one.parts)]
        one.step(1.0)
        if (averaging := self.averaging) is not None:
            one.average(averaging, update)


class OptimizersAsOne(torch.optim.Optimizer):
    """Optimisers of differing types, of a slice that has parameters of each: their groups, one after the other."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        super().__init__([group for one in optimizers for group in one.param_groups], {})
        self._optimizers = optimizers
        for one in optimizers:
            self.state.update(one.state)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Let each take its step, with the state and settings that this one has by now."""
        groups = iter(self.param_groups)
        for one in self._optimizers:
            one.state, one.param_groups = self.state, list(islice(groups, len(one.param_groups)))
            one.step()


def groups_among(group_of: Mapping[str, int], parts: Iterable[Range]) -> list[int]:
    """The numbers of the groups that parts are in, as an optimiser of a slice has them."""
    return sorted({group_of[part.name] for part in parts})


def by_group(group_of: Mapping[str, int], names: Sequence[str], tensors: list[Tensor]) -> dict[int, list[Tensor]]:
    """Tensors with these names by the number of their group, in the order of the numbers."""
    found: dict[int, list[Tensor]] = {number: [] for number in sorted({group_of[name] for name in names})}
    for name, tensor in zip(names, tensors, strict=True):
        found[group_of[name]].append(tensor)
    return found


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # as Adam's betas, after they were written down


def plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's settings, without its parameters."""
    return {
        key: value.item() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key != "params"
    }
