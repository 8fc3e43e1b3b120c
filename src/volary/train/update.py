"""The update of one step: learning rate, clipping, the optimiser's rule, and a clean slate for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.train.precision import Precision, clip

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from volary.session.spec import Train
    from volary.train.schedules._base import Schedule


class Update:
    """Applies the agreed gradients. steps: the run's planned steps, which some schedules need."""

    def __init__(
        self, optimizer: Optimizer, schedule: Schedule, settings: Train, precision: Precision, steps: int
    ) -> None:
        self.optimizer = optimizer
        self.lr = 0.0
        self._schedule, self._settings, self._precision, self._steps = schedule, settings, precision, steps
        # torch's own rules leave gradients as they are; of others nobody knows
        self._foreign = not type(optimizer).__module__.startswith("torch.optim.")
        self._base = [float(group["lr"]) for group in optimizer.param_groups]

    @property
    def changes_gradients(self) -> bool:
        """Whether an update changes gradients in place before it reads them."""
        clips = self._settings.clip_norm is not None or self._settings.clip_value is not None
        return clips or self._precision.scales or self._foreign

    def apply(self, step: int) -> None:
        """Update the parameters in the step after `step` finished ones."""
        factor = self._schedule.factor(step, self._steps)
        for group, base in zip(self.optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * factor
        self.lr = self._base[0] * factor
        self._precision.unscale(self.optimizer)
        clip(self._parameters(), self._settings.clip_norm, self._settings.clip_value)
        self._precision.step(self.optimizer)
        self.clear()

    def clear(self) -> None:
        """Forget the gradients of this step."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Optimiser and loss scale, for a checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "precision": self._precision.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self._precision.restore(state["precision"])

    def _parameters(self) -> list[Any]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
