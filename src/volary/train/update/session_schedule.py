"""The schedule of a run: what a session says, with epochs counted in steps and the rate scaled by the workers."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.session.values.period import Period
from volary.train.update.paced import Paced

if TYPE_CHECKING:
    from volary.data.feed import Feed
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


def schedule_of(session: Session, steps_per_epoch: int | None, feed: Feed | None = None) -> Schedule:
    """The session's schedule in steps (see `in_steps`), times what `train.scale_lr` says.

    linear: the number of workers that share a batch (Goyal et al. 2017, arXiv:1706.02677). sqrt: its root (Krizhevsky
    2014, arXiv:1404.5997). feed: whose batches it goes by; None: by the number of the update.
    Raises SettingError for epochs where their length is unknown.
    """
    shares = session.strategy.shares
    scale = {"none": 1.0, "linear": float(shares), "sqrt": shares**0.5}[session.train.scale_lr]
    schedule: Schedule = in_steps(session.schedule, steps_per_epoch)
    scaled = schedule if scale == 1 else ScaledSchedule(schedule, scale)
    return scaled if feed is None else Paced(scaled, feed)


def in_steps(setting: Any, steps_per_epoch: int | None) -> Any:
    """A schedule, or a setting of one, with every period in it counted in steps; never: 0.

    Raises SettingError for a period in epochs if there are no `steps_per_epoch`.
    """
    if isinstance(setting, Period):
        if setting.unit == "epochs" and steps_per_epoch is None:
            raise SettingError(
                f"schedule: {setting} cannot be counted in steps: the data is a stream without a length; accepted: "
                "a number of steps"
            )
        return setting.in_steps(steps_per_epoch or 1) or 0
    if isinstance(setting, tuple):
        return tuple(in_steps(one, steps_per_epoch) for one in setting)
    if is_dataclass(setting) and not isinstance(setting, type):
        own = {one.name: getattr(setting, one.name) for one in fields(setting)}
        return replace(setting, **{name: in_steps(value, steps_per_epoch) for name, value in own.items()})
    return setting
