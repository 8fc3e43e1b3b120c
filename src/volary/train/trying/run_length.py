"""The length of a run: whether its batches and steps, and what comes in the course of them, go with its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.feed import Feed
from volary.errors import SettingError
from volary.session.spec import MOST_STEPS
from volary.session.values.period import NEVER, Period
from volary.train.update.session_schedule import in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from volary.session.spec import Session
    from volary.train.model import Model


def remarks_of_length(model: Model) -> list[str]:
    """Warnings of batches, steps, a warm-up and moments that do not go with the data.

    Raises SettingError for more steps than there can be, and for a schedule in epochs that have no length.
    """
    session = model.session
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
    for setting, moment in _moments(session):
        if (at := moment.in_steps(feed.steps_per_epoch or 1)) is not None and at >= steps:
            warnings.append(f"{setting} is {moment}, and the run ends after {steps:,} steps: it does not come to that")
    return warnings


def _moments(session: Session) -> Iterator[tuple[str, Period]]:
    """Yield each moment of the run that something waits for, with its setting."""
    train = session.train
    yield "train.stop_at", train.stop_at
    yield "train.average.start", getattr(train.average, "start", NEVER)
    yield from (("train.freeze.until", rule.until) for rule in train.freeze)
