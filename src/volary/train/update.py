"""The update of one step: learning rate, clipping, the optimiser's rule, and a clean slate for the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from volary.train.pieces import Pieces, Portion, load_state
from volary.train.precision import Precision, clip

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.session.spec import Train
    from volary.train.schedules._base import Schedule


class Update:
    """Applies the agreed gradients: all at once, or chunk by chunk where the rule allows it.

    steps: the run's planned steps, which some schedules need. build: an optimiser like `optimizer`, of given tensors.
    elementwise: the rule's own promise that each value's update depends on its own gradient and state alone.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        settings: Train,
        precision: Precision,
        steps: int,
        build: Callable[[list[Tensor]], Optimizer],
        elementwise: bool,
    ) -> None:
        self.optimizer = optimizer
        self.lr = 0.0
        self._schedule, self._settings, self._precision, self._steps = schedule, settings, precision, steps
        self._build, self.elementwise = build, elementwise
        # torch's own rules leave gradients as they are; of others nobody knows
        self._foreign = not type(optimizer).__module__.startswith("torch.optim.")
        self._base = [float(group["lr"]) for group in optimizer.param_groups]
        self._pieces: Pieces | None = None

    @property
    def changes_gradients(self) -> bool:
        """Whether an update of all at once changes gradients in place before it reads them."""
        clips = self._settings.clip_norm is not None or self._settings.clip_value is not None
        return clips or self._precision.scales or self._foreign

    @property
    def why_whole(self) -> str:
        """Empty where parameters can be updated chunk by chunk, else why all gradients are waited for."""
        if self._settings.clip_norm is not None:
            return "train.clip_norm needs the norm of all gradients"
        if self._precision.scales:
            return "fp16 leaves an update out if any gradient overflowed"
        if not self.elementwise:
            return f"nothing says that {type(self.optimizer).__name__} updates each value on its own"
        return ""

    def divide(self, chunks: Sequence[Sequence[Portion]]) -> None:
        """From now on `apply_chunk` updates, chunk by chunk, whatever was made of updates before."""
        state = self.optimizer.state_dict() if self._pieces is None else self._pieces.gather()
        self._pieces = Pieces(chunks, self._build, self.optimizer, self._settings.clip_value)
        self._pieces.scatter(state)

    def prepare(self, step: int) -> None:
        """Set the learning rate of the step after `step` finished ones."""
        factor = self._schedule.factor(step, self._steps)
        rates = [base * factor for base in self._base]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        if self._pieces is not None:
            self._pieces.set_lr(rates)
        self.lr = rates[0]

    def apply_chunk(self, number: int, used: Sequence[bool], scale: float = 1.0) -> None:
        """Update the parameters in one chunk; used: whether any rank had a gradient for each; scale: of these."""
        assert self._pieces is not None
        self._pieces.apply(number, used, scale)

    def apply(self, scale: float = 1.0) -> None:
        """Update all parameters. scale: a factor of all gradients."""
        if scale != 1.0:
            for parameter in self._parameters():
                if parameter.grad is not None:  # replaced: it may lie in memory that others read
                    parameter.grad = parameter.grad * scale
        self._precision.unscale(self.optimizer)
        clip(self._parameters(), self._settings.clip_norm, self._settings.clip_value)
        self._precision.step(self.optimizer)
        self.clear()

    def clear(self) -> None:
        """Forget the gradients of this step."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Optimiser and loss scale, for a checkpoint."""
        state = self.optimizer.state_dict() if self._pieces is None else self._pieces.gather()
        return {"optimizer": state, "precision": self._precision.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        if self._pieces is None:
            load_state(self.optimizer, state["optimizer"])
        else:
            self._pieces.scatter(state["optimizer"])
        self._precision.restore(state["precision"])

    def _parameters(self) -> list[Any]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
