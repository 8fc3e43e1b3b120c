"""The update of one step: learning rate, clipping, the optimiser's rule, and a clean slate for the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_

from volary.errors import SettingError
from volary.server.roster.plateau import Plateau
from volary.server.update_rule import SliceUpdate
from volary.sharding.ranges import Range
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.by_slices import by_number
from volary.train.update.optimizer_rule import OptimizerRule
from volary.train.update.part_norm import PartNorm
from volary.train.update.swapped import swapped

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.comm.groups.layer_group import PartGroup
    from volary.session.train_section import Train
    from volary.sharding.holdings import Holdings
    from volary.train.schedules._base import Schedule
    from volary.train.update.averaging import Averaging
    from volary.train.update.optimizer_rule import SliceOptimizer
    from volary.train.update.precision import Precision

_WHOLE = 0  # the slice that is all parameters


class Update:
    """Applies the agreed gradients: of all parameters, as of one slice, or slice by slice where the rule allows it.

    It says to its slices how they are updated; see `volary.train.update.optimizer_rule.Updating`.
    named: the trained parameters. steps: the run's planned steps, which some schedules need. build: an optimiser of
    parameters, first given their names and then the tensors. elementwise: the rule's own promise that each value's
    update depends on its own gradient and state alone. averaging: of what it updates, if an average is kept. lr: the
    learning rate of the newest step; factor: that by which the schedule has changed it. plateau: what evaluations have
    made of it.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        schedule: Schedule,
        settings: Train,
        precision: Precision,
        steps: int,
        build: Callable[[Sequence[str]], Callable[[list[Tensor]], Optimizer]],
        elementwise: bool,
        averaging: Averaging | None = None,
    ) -> None:
        self._schedule, self._settings, self._precision, self._steps = schedule, settings, precision, steps
        self._build, self.elementwise, self.clip_value = build, elementwise, settings.clip_value
        self._whole = {Range(name, 0, parameter.numel()): parameter for name, parameter in named}
        self._rule, self._divided = OptimizerRule({_WHOLE: self._whole}, self), False
        made = self._rule.optimizers[_WHOLE]
        self._kind = type(made.optimizer)
        self.base_lr = made.rates[0]  # before any schedule
        self._changed_lr: float | None = None
        self._rule.changes_sums = self.changes_gradients
        self.lr, self.factor = 0.0, 1.0
        self._norm: PartNorm | None = None
        self.plateau = Plateau()
        self._averaging, self._done = averaging, 0

    def hold_parts(self, holdings: Holdings, parts: PartGroup) -> None:
        """From now on these are parts of parameters, and other workers have the rest. Raises SettingError if the rule
        needs whole ones.
        """
        if not self.elementwise and holdings.cut:
            raise SettingError(
                f"optimizer: nothing says that {self._kind.__name__} updates each value on its own, and workers have "
                "parts of parameters; accepted: an elementwise one, as sgd or adam, or partition=data"
            )
        self._norm = PartNorm(holdings, parts)

    @property
    def changes_gradients(self) -> bool:
        """Whether an update of all at once changes gradients in place before it reads them."""
        clips = self._settings.clip_norm is not None or self.clip_value is not None
        # torch's own rules leave gradients as they are; of others nobody knows
        foreign = not self._kind.__module__.startswith("torch.optim.")
        return clips or self._precision.scales or foreign

    @property
    def why_whole(self) -> str:
        """Empty where parameters can be updated slice by slice, else why all gradients are waited for."""
        if self._settings.clip_norm is not None:
            return "train.clip_norm needs the norm of all gradients"
        return self.why_undivided

    @property
    def why_undivided(self) -> str:
        if self._precision.scales:
            return "fp16 leaves an update out if any gradient overflowed"
        if not self.elementwise:
            return f"nothing says that {self._kind.__name__} updates each value on its own"
        if self._settings.clip_norm is not None and self.clip_value is not None:
            return "train.clip_norm is of gradients that train.clip_value has changed, which no worker has all of"
        return ""

    @property
    def most_norm(self) -> float | None:
        return self._settings.clip_norm

    def divide(self, slices: Sequence[Mapping[Range, Tensor]]) -> OptimizerRule:
        self._rule, self._divided = OptimizerRule(by_number(slices), self, self._state()), True
        return self._rule

    def join(self) -> None:
        """Let `apply` update all parameters at once again, as at the beginning."""
        if self._divided:
            changes = self.changes_gradients
            self._rule = OptimizerRule({_WHOLE: self._whole}, self, self._state(), changes_sums=changes)
            self._divided = False

    def prepare(self, step: int) -> None:
        """Set the learning rate of the step after `step` finished ones."""
        self._done = step + 1
        self.factor = self._schedule.factor(step, self._steps) * self.plateau.factor
        self.lr = self.base_lr * self.factor

    def change_rate(self, lr: float) -> float:
        """Let the learning rate before any schedule be `lr`, once all updates before are done; what it was."""
        was, self.base_lr, self._changed_lr = self.base_lr, lr, lr
        return was

    def apply(self, scale: float = 1.0) -> None:
        """Update all parameters at once by their gradients. scale: a factor of these."""
        values = list(self._whole.values())
        self._precision.unscale(self._rule.optimizers[_WHOLE].optimizer)
        self._rule.apply(_WHOLE, values, SliceUpdate([one.grad for one in values], scale=scale))

    def clear(self) -> None:
        """Forget the gradients of this step."""
        for parameter in self._whole.values():
            parameter.grad = None

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        return self._build(names)

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take a step of a slice, at the learning rate of this step; what needs all gradients has them in one."""
        self.step_at(self.factor, one, update)

    def step_at(self, factor: float, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Take it at the learning rate that had this factor."""
        if self._changed_lr is not None:
            one.change_rate(self._changed_lr)
        if self._settings.clip_norm is not None and not self._divided:
            self._clip(one.parts, self._settings.clip_norm)
        one.step(factor, self._precision.step if self._precision.scales else None)
        if self._averaging is not None:
            one.average(self._averaging, replace(update, done=self._done))

    def averaged(self) -> AbstractContextManager[None]:
        """Lend the parameters their averages, where there are some; all updates are done."""
        return swapped(self._swap)

    def _swap(self) -> None:
        for one in self._rule.optimizers.values():
            one.swap_averages()

    def _clip(self, parts: Mapping[Range, Tensor], most: float) -> None:
        if self._norm is None:
            clip_grad_norm_(parts.values(), most)
            return
        gradients = {part.name: one.grad for part, one in parts.items() if one.grad is not None}
        clip_grads_with_norm_(parts.values(), most, self._norm(gradients, 2.0))

    def lend_state(self, rule: OptimizerRule) -> None:
        """Let the rule of as many parameters, of one slice, remember what this one does, in the same memory."""
        own, other = self._rule.optimizers[_WHOLE], rule.optimizers[_WHOLE]
        for values, others in zip(own.parts.values(), other.parts.values(), strict=True):
            other.optimizer.state[others] = own.optimizer.state[values]

    def state(self) -> list[Any]:
        """The optimiser's state, as `OptimizerState.plain` gives it, in its own memory until the next update."""
        return self._state().plain()

    def restore(self, state: list[Any]) -> None:
        remembered = OptimizerState.from_plain(state)
        for number in self._rule.optimizers:
            self._rule.restore(number, remembered)

    def _state(self) -> OptimizerState:
        numbers = self._rule.optimizers
        return OptimizerState(part for number in numbers for part in self._rule.state(number, copied=False))
