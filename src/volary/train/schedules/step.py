"""The learning rate drops every so many steps (Caffe: "step")."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """The rate times gamma ^ floor(step / every)."""

    every: int  # steps between two drops
    gamma: float = 0.1  # what each drop multiplies by, above 0
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(self.every >= 1, "every", self.every, "a whole number of steps, 1 or more")
        require(self.gamma > 0, "gamma", self.gamma, "above 0")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        return warmed(step, self.warmup, self.gamma ** (step // self.every))


SCHEDULE = StepDecay
