"""Cyclical learning rates: between two rates, up and down (Smith 2017, arXiv:1506.01186)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volary.session.checks import require
from volary.session.values.period import Period
from volary.train.schedules._base import require_warmup, warmed


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """As torch's CyclicLR with `optimizer.lr` as the largest rate; the momentum stays as it is."""

    floor: float = 0.25  # the smallest factor, with which a cycle begins and ends; from 0 to 1
    up: int = 2000  # steps in which the rate grows
    down: int | None = None  # steps in which it falls (default: as many)
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"  # 2: each cycle is half as high; exp: gamma
    gamma: float = 1.0  # with exp_range: each step's factor of the height, above 0, up to 1
    warmup: int | Period = 0  # steps, or as `2 epochs`, over which the learning rate first grows linearly

    def __post_init__(self) -> None:
        require(0 <= self.floor <= 1, "floor", self.floor, "from 0 to 1")
        require(self.up >= 1, "up", self.up, "a whole number of steps, 1 or more")
        require(self.down is None or self.down >= 1, "down", self.down, "a whole number of steps, 1 or more")
        require(0 < self.gamma <= 1, "gamma", self.gamma, "above 0, up to 1")
        needed = self.gamma == 1 or self.mode == "exp_range"
        require(needed, "gamma", self.gamma, "another than 1 only with mode exp_range")
        require_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        down = self.down or self.up
        cycle, within = divmod(step, self.up + down)
        height = within / self.up if within <= self.up else 1 - (within - self.up) / down
        heights = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**step}
        return warmed(step, self.warmup, self.floor + (1 - self.floor) * height * heights[self.mode])


SCHEDULE = Cyclic
