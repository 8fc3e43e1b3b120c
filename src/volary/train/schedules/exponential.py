"""The learning rate shrinks by a factor each step (Caffe: "exp")."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """The schedule whose factor at step t is gamma ^ t."""

    gamma: float  # what each step multiplies by, above 0; 0.999 halves the rate in 693 steps
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(0 < self.gamma <= 1, "gamma", self.gamma, "above 0, up to 1")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        return warmed(step, self.warmup, self.gamma**step)


SCHEDULE = Exponential
