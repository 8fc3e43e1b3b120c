"""Which samples of a batch a rank learns from: one of so many shares, about equal, or in proportion to given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SampleShare:
    """Share `number`, from 0, of `count`. Ranks that hold parts of one replica have the same (`RankMesh.samples`).

    A batch may be too small for so many: if full batches, of `whole` samples, give everyone two, a smaller one gives
    nobody a single one, with which batch norm fails, and fewer shares have any. whole is 0: single ones are given.
    sizes: samples of each share of a full batch; empty: all about equal.
    """

    number: int = 0
    count: int = 1
    sizes: Sequence[int] = ()

    def of(self, total: int, whole: int) -> slice:
        """The share of a batch of `total`, for ranks that keep step: every n-th sample from its own on, or, by sizes,
        neighbours.
        """
        if self.sizes:
            sizes = divided(total, self.sizes, singles=total >= whole or min(self.sizes) < 2)
            start = sum(sizes[: self.number])
            return slice(start, start + sizes[self.number])
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


def divided(total: int, sizes: Sequence[int], *, singles: bool = True) -> list[int]:
    """Divide `total` samples in proportion to `sizes`, by largest remainders; with the sum of `sizes` it is these.

    singles: a share may be of one sample; else the smallest shares are left out until none is.
    """
    weights = list(sizes)
    while True:
        whole = sum(weights)
        found = [total * weight // whole for weight in weights]
        by_remainder = sorted(range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place))
        for place in by_remainder[: total - sum(found)]:
            found[place] += 1
        if singles or total < 2 or 1 not in found:
            return found
        weights[min((place for place in range(len(weights)) if weights[place]), key=weights.__getitem__)] = 0
