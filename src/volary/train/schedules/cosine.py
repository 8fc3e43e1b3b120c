"""The learning rate falls along half a cosine (Loshchilov & Hutter 2017, arXiv:1608.03983)."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """The factor falls from 1 to `floor`, and stays there."""

    steps: int | None = None  # the step at which the floor is reached (default: the run's length)
    floor: float = 0.0  # the last factor, from 0 to 1
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        whole = self.steps is None or self.steps >= 1
        require(whole, "steps", self.steps, "a whole number of steps, 1 or more")
        require(0 <= self.floor <= 1, "floor", self.floor, "from 0 to 1")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        done = min(1.0, step / (self.steps or steps))
        return warmed(step, self.warmup, self.floor + (1 - self.floor) * (1 + cos(pi * done)) / 2)


SCHEDULE = Cosine
