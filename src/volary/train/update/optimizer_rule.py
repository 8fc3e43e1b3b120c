"""The update rule that is an optimiser of each slice: of a worker's own parameters, and of those that servers keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from volary.train.update.rule import SliceOptimizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.server.update_rule import SliceUpdate
    from volary.sharding.ranges import Range
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.rule import PartState


class Updating(Protocol):
    """Which optimiser is used, and how it takes its steps; see `SliceOptimizer`."""

    @property
    def elementwise(self) -> bool:
        """Whether each value is updated by its own gradient and state alone."""
        ...

    @property
    def clip_value(self) -> float | None:
        """The largest magnitude that a value of a gradient may have; None: any."""
        ...

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """What makes the optimiser of the parameters, or parts of them, with these names."""
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
        """What the optimiser remembers of each part. copied: see `SliceOptimizer.state`."""
        return self.optimizers[number].state(copied=copied)

    def restore(self, number: int, state: OptimizerState) -> None:
        """Go on from there, however it was cut."""
        self.optimizers[number].restore(state)
