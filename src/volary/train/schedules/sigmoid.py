"""The learning rate falls along a sigmoid (Caffe: "sigmoid")."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Sigmoid:
    """1 / (1 + exp(-gamma * (step - middle))); it falls where gamma is below 0."""

    middle: int  # the step at which the factor is 1/2
    gamma: float  # how soon it falls (below 0) or grows (above 0)
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(self.middle >= 0, "middle", self.middle, "a whole number of steps, 0 or more")
        require(self.gamma != 0, "gamma", self.gamma, "below or above 0")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        away = self.gamma * (step - self.middle)
        factor = 1 / (1 + exp(-away)) if away >= 0 else exp(away) / (1 + exp(away))
        return warmed(step, self.warmup, factor)


SCHEDULE = Sigmoid
