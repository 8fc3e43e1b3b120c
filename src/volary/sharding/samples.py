"""Which samples of a batch a rank learns from: one of so many shares, about equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleShare:
    """Share `number`, from 0, of `count`. Ranks that hold parts of one replica have the same (`RankMesh.samples`).

    A batch may be too small for so many: if full batches, of `whole` samples, give everyone two, a smaller one gives
    nobody a single one, with which batch norm fails, and fewer shares have any. whole is 0: single ones are given.
    """

    number: int = 0
    count: int = 1

    def of(self, total: int, whole: int) -> slice:
        """Every n-th sample of a batch of `total`, from its own on: what ranks that keep step learn from."""
        count = self._filled(total, whole)
        return slice(self.number, None, count) if self.number < count else slice(0)

    def run(self, total: int, whole: int) -> range:
        """Neighbours among the samples of a batch of `total`: what is handed out as a portion."""
        count = self._filled(total, whole)
        if self.number >= count:
            return range(0)
        return range(total * self.number // count, total * (self.number + 1) // count)

    def _filled(self, total: int, whole: int) -> int:
        """How many shares have samples."""
        return max(1, total // 2) if total < 2 * self.count <= whole else self.count


UNDIVIDED = SampleShare()  # all of each batch
