"""One cycle: up to the full learning rate and down to nearly none (Smith & Topin 2018, arXiv:1708.07120)."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import Literal

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class OneCycle:
    """As torch's OneCycleLR with `optimizer.lr` as the largest rate; the momentum stays as it is."""

    steps: int | None = None  # the cycle's length, after which the last factor stays (default: the run's length)
    pct_start: float = 0.3  # share of the steps in which the rate grows
    anneal: Literal["cos", "linear"] = "cos"  # the form of both sides
    div_factor: float = 25.0  # the first factor is 1 / div_factor
    final_div_factor: float = 1e4  # the last factor is the first one divided by this
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        whole = self.steps is None or self.steps >= 1
        require(whole, "steps", self.steps, "a whole number of steps, 1 or more")
        require(0 < self.pct_start < 1, "pct_start", self.pct_start, "above 0, below 1")
        require(self.div_factor >= 1, "div_factor", self.div_factor, "1 or more")
        require(self.final_div_factor >= 1, "final_div_factor", self.final_div_factor, "1 or more")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        total, first = self.steps or steps, 1 / self.div_factor
        top, end = max(0.0, self.pct_start * total - 1), max(1.0, total - 1)
        if step < top:
            found = self._between(first, 1.0, step / top)
        else:
            found = self._between(1.0, first / self.final_div_factor, min(1.0, (step - top) / (end - top)))
        return warmed(step, self.warmup, found)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal == "cos":
            share = (1 - cos(pi * share)) / 2
        return start + (end - start) * share


SCHEDULE = OneCycle
