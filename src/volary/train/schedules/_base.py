"""The protocol of schedules, and the warm-up that all of them share."""

from __future__ import annotations

from typing import Protocol

from volary.session.checks import require
from volary.session.values.period import Period


class Schedule(Protocol):
    """Gives the factor of the learning rate at each step. A pure function: nothing is remembered or resumed."""

    def factor(self, step: int, steps: int) -> float:
        """The factor for the update numbered `step` (0 is the first) of a run of `steps` updates."""
        ...


def warmed(step: int, warmup: int | Period, factor: float) -> float:
    """`factor`, held down over the first `warmup` steps: 1/warmup of it, 2/warmup, ... (Goyal et al. 2017).

    A warm-up in epochs has been counted in steps before; see `volary.train.update.session_schedule`.
    """
    assert isinstance(warmup, int)
    return factor * min(1.0, (step + 1) / warmup) if warmup else factor


def require_warmup(warmup: int | Period) -> None:
    """Raise SettingError for a negative warm-up, and for what is none."""
    right = isinstance(warmup, Period) or (isinstance(warmup, int) and warmup >= 0)
    require(right, "warmup", warmup, "a whole number of steps, 0 or more, or a period as 2 epochs")
