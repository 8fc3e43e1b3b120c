"""The learning rate falls to 0 along a polynomial (Caffe: "poly")."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Polynomial:
    """(1 - step / max_steps) ^ power, and 0 from max_steps on."""

    power: float = 1.0  # 1 is a straight line
    max_steps: int | None = None  # the step at which 0 is reached (default: the run's length)
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(self.power > 0, "power", self.power, "above 0")
        whole = self.max_steps is None or self.max_steps >= 1
        require(whole, "max_steps", self.max_steps, "a whole number of steps, 1 or more")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        rest = max(0.0, 1 - step / (self.max_steps or steps))
        return warmed(step, self.warmup, rest**self.power)


SCHEDULE = Polynomial
