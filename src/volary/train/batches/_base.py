"""The protocol of rules for the size of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.train.growth import Growth
    from volary.train.recording.recorder import Recorder


class Batches(Protocol):
    """How the number of samples of a step changes in the course of a run."""

    def largest(self, batch_size: int) -> int:
        """Samples of the largest batch there may be; batch_size: of the first."""
        ...

    def build(self, feed: Feed, recorder: Recorder) -> Growth | None:
        """Return what lets the feed's batches grow; None if their size stays. Raises SettingError."""
        ...
