"""Half a cosine again and again: warm restarts (Loshchilov & Hutter 2017, arXiv:1608.03983)."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """As torch's CosineAnnealingWarmRestarts: the factor falls from 1 to `floor`, and begins anew at 1."""

    every: int  # steps of the first period
    times: int = 1  # how many times as long as the one before each period is
    floor: float = 0.0  # the factor that a period falls to, from 0 to 1
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(self.every >= 1, "every", self.every, "a whole number of steps, 1 or more")
        require(self.times >= 1, "times", self.times, "a whole number, 1 or more")
        require(0 <= self.floor <= 1, "floor", self.floor, "from 0 to 1")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        within, period = step, self.every
        if self.times == 1:
            within %= period
        while within >= period:
            within, period = within - period, period * self.times
        return warmed(step, self.warmup, self.floor + (1 - self.floor) * (1 + cos(pi * within / period)) / 2)


SCHEDULE = Restarts
