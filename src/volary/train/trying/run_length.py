"""The length of a run: whether its batches, steps and warm-up go with its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.feed import Feed
from volary.errors import SettingError
from volary.session.spec import MOST_STEPS
from volary.train.update.session_schedule import in_steps

if TYPE_CHECKING:
    from volary.session.spec import Session
    from volary.train.model import Model


def remarks_of_length(session: Session, model: Model) -> list[str]:
    """Warnings of batches, steps and a warm-up that do not go with the data. Raises SettingError for more steps than
    there can be, and for a schedule in epochs that have no length.
    """
    feed, warnings = Feed(model.samples, session.data.batch_size, shuffle=False), []
    steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
    if steps > MOST_STEPS:
        raise SettingError(
            f"train.epochs is {session.train.epochs:g}, which are {steps:,} steps; accepted: up to {MOST_STEPS:,} steps"
        )
    if feed.samples is not None and session.data.batch_size > feed.samples:
        warnings.append(
            f"data.batch_size is {session.data.batch_size:,}, more than the training data has ({feed.samples:,}): "
            "each step learns from all of them"
        )
    warmup = getattr(in_steps(session.schedule, feed.steps_per_epoch), "warmup", 0)
    if warmup > steps:
        warnings.append(
            f"schedule.warmup is {warmup:,}, longer than the run of {steps:,} steps: the learning rate never reaches "
            "what optimizer.lr says"
        )
    return warnings
