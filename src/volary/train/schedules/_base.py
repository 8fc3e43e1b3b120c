"""The protocol of schedules, and the warm-up that all of them share."""

from __future__ import annotations

from typing import Protocol

from volary.session.checks import require


class Schedule(Protocol):
    """Gives the factor of the learning rate at each step. A pure function: nothing is remembered or resumed."""

    def factor(self, step: int, steps: int) -> float:
        """The factor for the update numbered `step` (0 is the first) of a run of `steps` updates."""
        ...


def warmed(step: int, warmup: int, factor: float) -> float:
    """`factor`, held down over the first `warmup` steps: 1/warmup of it, 2/warmup, ... (Goyal et al. 2017)."""
    return factor * min(1.0, (step + 1) / warmup) if warmup else factor


def require_warmup(warmup: int) -> None:
    """Raise SettingError for a negative warm-up."""
    require(warmup >= 0, "warmup", warmup, "a whole number of steps, 0 or more")
