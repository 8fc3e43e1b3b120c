"""A schedule that goes by the data that was seen, so that it means the same whatever the size of the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.train.schedules._base import Schedule


@dataclass(frozen=True)
class Paced:
    """`schedule` by the feed's steps; a larger batch has a rate that is larger by as much.

    As in CNTK, where the learning rate is one of a sample: a size that learns as well per sample can only be found if
    as many samples move the parameters as far (also Goyal et al. 2017, arXiv:1706.02677).
    """

    schedule: Schedule
    feed: Feed

    def factor(self, step: int, steps: int) -> float:
        """The factor for the batch at hand, whose number among the updates does not matter."""
        return self.schedule.factor(self.feed.begun, steps) * (self.feed.size / self.feed.batch_size)
