"""Batches grow while the loss allows it: CNTK's rule (its `autoAdjustMinibatch`; Seide et al., Interspeech 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.session.checks import require
from volary.session.values.period import Period

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.train.growth import Growth
    from volary.train.recording.recorder import Recorder

EVERY_EPOCH = Period(1, "epochs")
GROWS_TO = 16  # times the first
FEWEST = 4  # batches of a trial: the loss of fewer says little of what their updates do


@dataclass(frozen=True, kw_only=True)
class AutoBatch:
    """Now and then several sizes are tried on the same samples; the largest that learns as well is taken."""

    every: Period = EVERY_EPOCH  # how often a size is searched for
    trial: float = 0.05  # samples that each size is tried on, as a share of those between two searches
    margin: float = 0.01  # by how much a size's mean loss may exceed that of the smallest, as a share of it
    most: int | None = None  # samples of the largest batch, up to a quarter of a trial (default: 16 times batch_size)

    def __post_init__(self) -> None:
        require(self.every.unit != "never", "every", "'never'", "'<n> steps' or '<n> epochs'")
        require(0 < self.trial <= 1, "trial", self.trial, "above 0, up to 1")
        require(self.margin >= 0, "margin", self.margin, "0 or more")
        require(self.most is None or self.most >= 1, "most", self.most, "a whole number, 1 or more")

    def largest(self, batch_size: int) -> int:
        """The largest size: what `most` sets, or 16 times the first size."""
        return self.most or GROWS_TO * batch_size

    def build(self, feed: Feed, recorder: Recorder) -> Growth:
        """Growth by these settings. Raises SettingError if an epoch has no known length, or a trial few samples."""
        from volary.train.growth import Growth

        if feed.steps_per_epoch is None and self.every.unit == "epochs":
            raise SettingError(
                f"data.batch.every is '{self.every}', and the data is a stream without a length; accepted: '<n> steps'"
            )
        steps = self.every.in_steps(feed.steps_per_epoch or 1)
        assert steps is not None
        trial_steps = round(self.trial * steps)
        if trial_steps < FEWEST:
            raise SettingError(
                f"data.batch.trial is {self.trial:g}, {trial_steps} of the {steps} steps in {self.every}; accepted: "
                f"a share of at least {FEWEST} steps, or a longer data.batch.every"
            )
        most = min(self.largest(feed.batch_size), trial_steps * feed.batch_size // FEWEST)
        return Growth(
            feed,
            recorder,
            period_steps=steps,
            trial_samples=trial_steps * feed.batch_size,
            margin=self.margin,
            most=most,
        )


BATCH = AutoBatch
