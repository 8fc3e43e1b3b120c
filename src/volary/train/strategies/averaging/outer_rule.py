"""The outer rule of local steps: an optimiser of the parameters that all had, by what workers have changed since.

The mean of their changes, with the sign turned, takes the place of a gradient: SGD with Nesterov momentum makes it
DiLoCo (Douillard et al. 2023, arXiv:2311.08105), SGD with plain momentum blockwise model-update filtering, CNTK's
block momentum (Chen and Huo, ICASSP 2016), and any other optimiser FedOpt (Reddi et al., ICLR 2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.server.update_rule import MeanRule
from volary.sharding.ranges import Range
from volary.train.model import plain_rule
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.optimizer_rule import OptimizerRule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.consistency._base import Consistency
    from volary.server.update_rule import SliceUpdate, UpdateRule
    from volary.train.update.optimizer_rule import PartState, SliceOptimizer


class OuterUpdating:
    """See `volary.train.update.optimizer_rule.Updating`: at the outer rule's own learning rate, always.

    Raises SettingError if nothing says that `build` makes an optimiser that updates each value on its own.
    """

    elementwise = True
    clip_value = None

    def __init__(self, build: Callable[[list[Tensor]], Optimizer], elementwise: bool) -> None:
        if not elementwise:
            raise SettingError(
                "consistency.outer: nothing says that it updates each value on its own, and servers keep parts of "
                "parameters; accepted: an elementwise one, as sgd or adam, or a class of yours that says elementwise"
            )
        self._build = build

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        return self._build

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        one.step(1.0)


def outer_updating(consistency: Consistency) -> OuterUpdating | None:
    """How a consistency model's outer rule updates; None: it has none. Raises SettingError, as `OuterUpdating`."""
    return None if consistency.outer is None else OuterUpdating(*plain_rule(consistency.outer))


class OuterRule:
    """See `volary.server.update_rule.UpdateRule`. Of `slices`, by number: values of parts, see `SliceOptimizer`."""

    changes_sums = False

    def __init__(self, slices: Mapping[int, Mapping[Range, Tensor]], updating: OuterUpdating) -> None:
        self._optimizers = OptimizerRule(slices, updating)

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Step to where workers went: what they have changed is a step against a gradient."""
        self._optimizers.apply(number, values, replace(update, scale=-update.scale))

    def state(self, number: int, *, copied: bool = True) -> list[PartState]:
        """What the rule remembers of each part. copied: see `SliceOptimizer.state`."""
        return self._optimizers.state(number, copied=copied)

    def restore(self, number: int, state: OptimizerState) -> None:
        self._optimizers.restore(number, state)


class WorkersOuterRule:
    """The outer rule where all workers keep all parameters, and so each the same rule; see `Stateful`.

    It outlives what travels in which buckets, and may be restored before there is a network.
    """

    def __init__(self) -> None:
        self._rule: OuterRule | None = None
        self._restored = OptimizerState()
        self._slices = 0

    def of(self, module: nn.Module, updating: OuterUpdating | None) -> UpdateRule:
        """The rule of the trained parameters, numbered as the network has them; without `updating` the mean."""
        if updating is None:
            return MeanRule()
        if self._rule is None:
            trained = [(name, one.detach()) for name, one in named_parameters(module) if one.requires_grad]
            slices = {number: {Range(name, 0, one.numel()): one} for number, (name, one) in enumerate(trained)}
            self._rule, self._slices = OuterRule(slices, updating), len(slices)
            self._take_up()
        return self._rule

    def state(self) -> list[Any]:
        """What it remembers, as `OptimizerState.plain` gives it, in its own memory until the next update."""
        if self._rule is None:
            return []
        found = [self._rule.state(number, copied=False) for number in range(self._slices)]
        return OptimizerState(part for parts in found for part in parts).plain()

    def restore(self, state: list[Any]) -> None:
        self._restored = OptimizerState.from_plain(state)
        self._take_up()

    def _take_up(self) -> None:
        if self._rule is None:
            return
        for number in range(self._slices):
            self._rule.restore(number, self._restored)
        self._restored = OptimizerState()
