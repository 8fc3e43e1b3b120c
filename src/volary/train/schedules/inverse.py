"""The learning rate falls with the inverse of the steps (Caffe: "inv")."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """(1 + gamma * step) ^ -power; the defaults are those of Caffe's LeNet."""

    gamma: float = 0.0001  # how soon it falls, above 0
    power: float = 0.75  # how steeply, above 0
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(self.gamma > 0, "gamma", self.gamma, "above 0")
        require(self.power > 0, "power", self.power, "above 0")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        return warmed(step, self.warmup, (1 + self.gamma * step) ** -self.power)


SCHEDULE = Inverse
