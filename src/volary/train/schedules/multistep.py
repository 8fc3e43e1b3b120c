"""The learning rate drops at given steps (Caffe: "multistep")."""

from __future__ import annotations

from dataclasses import dataclass

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """The rate times gamma ^ (number of milestones reached)."""

    milestones: tuple[int, ...]  # steps from which on a further drop holds, increasing
    gamma: float = 0.1  # what each drop multiplies by, above 0
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.milestones), self.milestones, strict=False))
        require(rising and bool(self.milestones), "milestones", list(self.milestones), "increasing steps, 1 or more")
        require(self.gamma > 0, "gamma", self.gamma, "above 0")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        reached = sum(milestone <= step for milestone in self.milestones)
        return warmed(step, self.warmup, self.gamma**reached)


SCHEDULE = MultiStep
