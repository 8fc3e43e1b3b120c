"""A learning rate that grows with the number of workers, as a session asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.session.spec import Session
    from volary.train.schedules._base import Schedule


@dataclass(frozen=True)
class ScaledSchedule:
    """`schedule` with all its factors multiplied by `scale`."""

    schedule: Schedule
    scale: float

    def factor(self, step: int, steps: int) -> float:
        """The factor for the update numbered `step` of a run of `steps` updates."""
        return self.scale * self.schedule.factor(step, steps)


def schedule_of(session: Session) -> Schedule:
    """The session's schedule, times what `train.scale_lr` makes of the workers that share a batch.

    linear: their number (Goyal et al. 2017, arXiv:1706.02677). sqrt: its root (Krizhevsky 2014, arXiv:1404.5997).
    """
    shares = session.strategy.shares
    scale = {"none": 1.0, "linear": float(shares), "sqrt": shares**0.5}[session.train.scale_lr]
    schedule: Schedule = session.schedule
    return schedule if scale == 1 else ScaledSchedule(schedule, scale)
