"""The outer rule of local steps: an optimiser of the parameters that all had, by what workers have changed since.

The mean of their changes, with the sign turned, takes the place of a gradient: SGD with Nesterov momentum makes it
DiLoCo (Douillard et al. 2023, arXiv:2311.08105), SGD with plain momentum blockwise model-update filtering, CNTK's
block momentum (Chen and Huo, ICASSP 2016), and any other optimiser FedOpt (Reddi et al., ICLR 2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError
from volary.naming import trained_parameters
from volary.server.update_rule import MeanRule
from volary.sharding.ranges import Range
from volary.train.model import plain_rule
from volary.train.state.optimizer_state import OptimizerState
from volary.train.strategies.averaging.averaged_mean import AveragedMean
from volary.train.update.optimizer_rule import OptimizerRule
from volary.train.update.swapped import swapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.consistency._base import Consistency
    from volary.server.update_rule import SliceUpdate, UpdateRule
    from volary.train.state.part_state import PartState
    from volary.train.update.averaging import Averaging
    from volary.train.update.optimizer_rule import SliceOptimizer


class OuterUpdating:
    """See `volary.train.update.optimizer_rule.Updating`: at the outer rule's own learning rate, always.

    averaging: of what it updates, if an average is kept. Raises SettingError if nothing says that `build` makes an
    optimiser that updates each value on its own.
    """

    elementwise = True
    clip_value = None

    def __init__(
        self, build: Callable[[list[Tensor]], Optimizer], elementwise: bool, averaging: Averaging | None = None
    ) -> None:
        if not elementwise:
            raise SettingError(
                "consistency.outer: nothing says that it updates each value on its own, and servers keep parts of "
                "parameters; accepted: an elementwise one, as sgd or adam, or a class of yours that says elementwise"
            )
        self._build, self._averaging = build, averaging

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        return self._build

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        one.step(1.0)
        if self._averaging is not None:
            one.average(self._averaging, update)


def outer_updating(consistency: Consistency, averaging: Averaging | None = None) -> OuterUpdating | None:
    """How a consistency model's outer rule updates; None: it has none. Raises SettingError, as `OuterUpdating`."""
    return None if consistency.outer is None else OuterUpdating(*plain_rule(consistency.outer), averaging)


def outer_rule(
    slices: Mapping[int, Mapping[Range, Tensor]],
    updating: OuterUpdating | None,
    averaging: Averaging | None,
    mean: MeanRule,
) -> OuterRule | AveragedMean | MeanRule:
    """The rule of what all have of `slices`, see `OuterRule`. updating: None: it changes as `mean` says.

    averaging: if an average of it is kept.
    """
    if updating is not None:
        return OuterRule(slices, updating)
    return mean if averaging is None else AveragedMean(mean, slices, averaging)


class OuterRule:
    """See `volary.server.update_rule.UpdateRule`. Of `slices`, by number: values of parts, see `SliceOptimizer`."""

    changes_sums = False

    def __init__(self, slices: Mapping[int, Mapping[Range, Tensor]], updating: OuterUpdating) -> None:
        self._optimizers = OptimizerRule(slices, updating)

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Step to where workers went: what they have changed is a step against a gradient."""
        self._optimizers.apply(number, values, replace(update, scale=-update.scale))

    def state(self, number: int, *, copied: bool = True) -> list[PartState]:
        """The rule's state of each part. copied: see `SliceOptimizer.state`."""
        return self._optimizers.state(number, copied=copied)

    def restore(self, number: int, state: OptimizerState) -> None:
        self._optimizers.restore(number, state)

    def average(self, number: int) -> Tensor | None:
        """The average of a slice that is one tensor, (...) in its shape; None: none yet."""
        return self._optimizers.optimizers[number].averages.of(0)


class WorkersOuterRule:
    """The outer rule where all workers keep all parameters, and so each the same rule; see `Stateful`.

    It outlives what travels in which buckets, and may be restored before there is a network. averaging: of what it
    makes, if an average is kept. lent: called once the parameters, which may be copies, have their averages, or their
    own values again.
    """

    def __init__(self, averaging: Averaging | None = None) -> None:
        self._averaging = averaging
        self.lent: Callable[[], None] = _nothing
        self._rule: OuterRule | AveragedMean | None = None
        self._restored = OptimizerState()
        self._trained: list[Tensor] = []

    def of(self, module: nn.Module, consistency: Consistency) -> UpdateRule:
        """The rule of the trained parameters, numbered as the network has them.

        Raises SettingError for an outer rule that needs whole tensors.
        """
        if self._rule is None:
            trained = trained_parameters(module)
            slices = {n: {Range(name, 0, one.numel()): one.detach()} for n, (name, one) in enumerate(trained.items())}
            made = outer_rule(slices, outer_updating(consistency, self._averaging), self._averaging, MeanRule())
            if isinstance(made, MeanRule):
                return made
            self._rule, self._trained = made, list(trained.values())
            self._take_up()
        return self._rule

    def averaged(self) -> AbstractContextManager[None]:
        """Lend the network, which has what all agreed on, the average of that, where there is one."""
        return swapped(self._swap)

    def averages(self) -> dict[int, Tensor]:
        """The states that there are, by the number of the parameter."""
        found = {n: None if self._rule is None else self._rule.average(n) for n in range(len(self._trained))}
        return {number: one for number, one in found.items() if one is not None}

    @torch.no_grad()
    def _swap(self) -> None:
        for number, average in self.averages().items():
            parameter = self._trained[number].detach()
            own = parameter.clone()
            parameter.copy_(average)
            average.copy_(own)
        self.lent()

    def state(self) -> list[Any]:
        """Its state, as `OptimizerState.plain` gives it, in its own memory until the next update."""
        if self._rule is None:
            return []
        found = [self._rule.state(number, copied=False) for number in range(len(self._trained))]
        return OptimizerState(part for parts in found for part in parts).plain()

    def begin_anew(self, state: list[Any]) -> None:
        """Let the rule that is made next go on from a state."""
        self._rule, self._trained = None, []
        self.restore(state)

    def restore(self, state: list[Any]) -> None:
        self._restored = OptimizerState.from_plain(state)
        self._take_up()

    def _take_up(self) -> None:
        if self._rule is None:
            return
        for number in range(len(self._trained)):
            self._rule.restore(number, self._restored)
        self._restored = OptimizerState()


def _nothing() -> None:
    """Parameters are the network's."""
