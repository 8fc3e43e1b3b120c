"""The learning rate at given steps, and between them: constant pieces, or straight lines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Piecewise:
    """The factors from given steps on: the first one before the first step, the last one after the last."""

    steps: tuple[int, ...]  # increasing
    factors: tuple[float, ...]  # the factor at each of these steps, 0 or more
    between: Literal["constant", "linear"] = "constant"  # until the next step: stays, or goes straight to the next
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        rising = bool(self.steps) and self.steps[0] >= 0 and all(a < b for a, b in pairwise(self.steps))
        require(rising, "steps", list(self.steps), "increasing steps, 0 or more")
        as_many = len(self.factors) == len(self.steps) and all(one >= 0 for one in self.factors)
        require(as_many, "factors", list(self.factors), f"as many as steps ({len(self.steps)}), each 0 or more")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        passed = sum(one <= step for one in self.steps)
        found = self.factors[max(0, passed - 1)]
        if self.between == "linear" and 0 < passed < len(self.steps):
            start, end = self.steps[passed - 1], self.steps[passed]
            found += (self.factors[passed] - found) * (step - start) / (end - start)
        return warmed(step, self.warmup, found)


SCHEDULE = Piecewise
