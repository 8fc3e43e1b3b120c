"""All batches have the same size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.data.feed import Feed
    from volary.train.recording.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """`data.batch_size`, from the first step to the last."""

    def largest(self, batch_size: int) -> int:
        """The first is as large as any."""
        return batch_size

    def build(self, feed: Feed, recorder: Recorder) -> None:
        pass


BATCH = Fixed
