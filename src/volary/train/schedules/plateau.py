"""A smaller rate when evaluations get no better (torch: ReduceLROnPlateau)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class ReduceOnPlateau:
    """The rate as it is until evaluations get no better, then times `gamma`."""

    by: Literal["metric", "loss"] = "metric"  # what is compared: the loss's deciding metric, or the validation loss
    gamma: float = 0.1  # what the rate is multiplied by
    patience: int = 10  # evaluations in a row without a better figure that change nothing yet
    threshold: float = 1e-4  # how much better a figure has to be, as a share of the best
    cooldown: int = 0  # evaluations after a change that count for nothing
    floor: float = 0.0  # the least factor
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(0 < self.gamma < 1, "gamma", self.gamma, "above 0, below 1")
        require(self.patience >= 0, "patience", self.patience, "a whole number, 0 or more")
        require(0 <= self.threshold < 1, "threshold", self.threshold, "0 to below 1")
        require(self.cooldown >= 0, "cooldown", self.cooldown, "a whole number, 0 or more")
        require(0 <= self.floor <= 1, "floor", self.floor, "0 to 1")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        """The factor before any evaluation; evaluations multiply it."""
        return warmed(step, self.warmup, 1.0)


SCHEDULE = ReduceOnPlateau
