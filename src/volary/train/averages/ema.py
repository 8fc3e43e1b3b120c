"""The exponential moving average of weights (Polyak & Juditsky 1992): recent ones count more."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import NEVER, Period


@dataclass(frozen=True, kw_only=True)
class Ema:
    """After each update `decay` of the average and `1 - decay` of the weights."""

    decay: float = 0.999  # of the average that stays, 0 to below 1
    start: Period = NEVER  # when it begins, such as 2 epochs; never: with the first update
    evaluate: bool = False  # evaluations, and so the best checkpoint, are of the average

    def __post_init__(self) -> None:
        require(0 <= self.decay < 1, "decay", self.decay, "0 to below 1")

    def share(self, count: int, newest: int, done: int, steps_per_epoch: int) -> float | None:
        return None if done <= (self.start.in_steps(steps_per_epoch) or 0) else 1 - self.decay


AVERAGE = Ema
