"""The learning rate stays as the optimiser has it."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The schedule whose factor is always 1."""

    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        return warmed(step, self.warmup, 1.0)


SCHEDULE = Constant
