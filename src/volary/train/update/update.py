"""The update of one step: learning rate, clipping, the optimiser's rule, and a clean slate for the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn.utils import clip_grad_norm_

from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.rule import SliceOptimizer, SlicePart

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.session.spec import Train
    from volary.train.schedules._base import Schedule
    from volary.train.update.precision import Precision


class Update:
    """Applies the agreed gradients: of all parameters, as of one slice, or slice by slice where the rule allows it.

    named: the trained parameters. steps: the run's planned steps, which some schedules need. build: an optimiser of
    given tensors. elementwise: the rule's own promise that each value's update depends on its own gradient and state
    alone. lr: the learning rate of the newest step.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        schedule: Schedule,
        settings: Train,
        precision: Precision,
        steps: int,
        build: Callable[[list[Tensor]], Optimizer],
        elementwise: bool,
    ) -> None:
        self._schedule, self._settings, self._precision, self._steps = schedule, settings, precision, steps
        self._build, self._elementwise = build, elementwise
        self._changed_lr: float | None = None
        self._whole = self._of([SlicePart(name, 0, parameter.numel(), parameter) for name, parameter in named])
        self._slices = [self._whole]
        # torch's own rules leave gradients as they are; of others nobody knows
        self._foreign = not type(self._whole.optimizer).__module__.startswith("torch.optim.")
        self.lr, self._factor = 0.0, 1.0

    @property
    def base_lr(self) -> float:
        """The learning rate before any schedule."""
        return self._whole.rates[0]

    @property
    def changes_gradients(self) -> bool:
        """Whether an update of all at once changes gradients in place before it reads them."""
        clips = self._settings.clip_norm is not None or self._settings.clip_value is not None
        return clips or self._precision.scales or self._foreign

    @property
    def why_whole(self) -> str:
        """Empty where parameters can be updated slice by slice, else why all gradients are waited for."""
        if self._settings.clip_norm is not None:
            return "train.clip_norm needs the norm of all gradients"
        if self._precision.scales:
            return "fp16 leaves an update out if any gradient overflowed"
        if not self._elementwise:
            return f"nothing says that {type(self._whole.optimizer).__name__} updates each value on its own"
        return ""

    def divide(self, slices: Sequence[Sequence[SlicePart]]) -> None:
        """From now on `apply_slice` updates, whatever was made of updates before."""
        state = self._state()
        self._whole.optimizer.state.clear()
        self._slices = []
        for parts in slices:  # one after the other, in the memory that there is: an optimiser may begin with its own
            one = self._of(parts)
            one.restore(state, copied=False)
            self._slices.append(one)

    def prepare(self, step: int) -> None:
        """Set the learning rate of the step after `step` finished ones."""
        self._factor = self._schedule.factor(step, self._steps)
        self.lr = self.base_lr * self._factor

    def change_rate(self, lr: float) -> float:
        """Let the learning rate before any schedule be `lr`, once all updates before are done; what it was."""
        was, self._changed_lr = self.base_lr, lr
        for one in (self._whole, *self._slices):
            one.change_rate(lr)
        return was

    def apply_slice(self, number: int, sums: Sequence[Tensor | None], scale: float = 1.0) -> None:
        """Update a slice. sums: of each part's gradients, (n,); None: no rank used the parameter. scale: of sums."""
        self._slices[number].take(sums, scale)
        self._slices[number].step(self._factor)

    def apply(self, scale: float = 1.0) -> None:
        """Update all parameters by their gradients. scale: a factor of these."""
        whole, parameters = self._whole, [part.values for part in self._whole.parts]
        self._precision.unscale(whole.optimizer)
        whole.take([parameter.grad for parameter in parameters], scale, in_place=self.changes_gradients)
        if self._settings.clip_norm is not None:
            clip_grad_norm_(parameters, self._settings.clip_norm)
        whole.step(self._factor, self._precision.step)

    def clear(self) -> None:
        """Forget the gradients of this step."""
        self._whole.clear()

    def state(self) -> list[Any]:
        """What the optimiser remembers, as `OptimizerState.plain` gives it, in its own memory until the next update."""
        return self._state().plain()

    def restore(self, state: list[Any]) -> None:
        """Go on from there."""
        remembered = OptimizerState.from_plain(state)
        for one in self._slices:
            one.restore(remembered)

    def _of(self, parts: Sequence[SlicePart]) -> SliceOptimizer:
        one = SliceOptimizer(parts, self._build, self._elementwise, self._settings.clip_value)
        if self._changed_lr is not None:
            one.change_rate(self._changed_lr)
        return one

    def _state(self) -> OptimizerState:
        return OptimizerState(part for one in self._slices for part in one.state(copied=False))
