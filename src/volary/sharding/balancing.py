"""Shares of a batch that follow the speed of ranks, so that all finish a step at about the same time.

What a rank needs for a sample is taken to be the same for any share: if part of its time is not, a share that was
chosen so is nearer to the right one, and the next choice nearer still.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt
from statistics import median

APART = 0.1  # of the time of the slowest, by which the fastest may be earlier
WINDOW = 16  # steps after which ranks are compared
MOST = 4 * WINDOW  # steps after which a comparison that is not clear is given up
PASSING = 2  # steps after a change that are not looked at
CLEAR = 3.0  # standard errors by which they must be further apart: steps vary
_ERROR = 1.858  # of a median, times the root of the count, per median deviation, of normally distributed values


class BalancedShares:
    """The samples of a full batch that each rank has: `sizes`, or none while all are about equal.

    least: samples that each rank keeps. All ranks hold the same one, and hear the same.
    """

    def __init__(self, batch_size: int, ranks: int, least: int = 1) -> None:
        self._batch_size, self._ranks = batch_size, ranks
        self._least = least * (2 if batch_size >= 2 * least * ranks else 1)  # batch norm needs two
        self.sizes: Sequence[int] = ()
        self._seen: list[Sequence[float]] = []  # by step, of each rank
        self._passing = PASSING

    @property
    def each(self) -> list[int]:
        """The samples of each rank."""
        return list(self.sizes) or [len(range(rank, self._batch_size, self._ranks)) for rank in range(self._ranks)]

    def see(self, sample_s: Sequence[float]) -> bool:
        """Note the seconds that each rank needed for a sample of its own in a step. Returns whether sizes changed.

        A step in which a rank had none, and needed 0 seconds, says nothing.
        """
        if min(sample_s) <= 0:
            return False
        if self._passing:
            self._passing -= 1
            return False
        self._seen.append(sample_s)
        return len(self._seen) % WINDOW == 0 and self._compare()

    def take(self, sizes: Sequence[int]) -> None:
        """Go on with these sizes; about equal ones if they are of another batch or of other ranks."""
        fitting = len(sizes) == self._ranks and sum(sizes) == self._batch_size
        self.sizes = tuple(sizes) if fitting else ()
        self._seen, self._passing = [], PASSING

    def _compare(self) -> bool:
        each = self.each
        by_rank = list(zip(*self._seen, strict=True))
        sample_s = [median(seen) for seen in by_rank]
        ends = [size * one for size, one in zip(each, sample_s, strict=True)]
        first, last = (ends.index(end) for end in (min(ends), max(ends)))
        beyond = ends[last] - ends[first] - APART * ends[last]
        if beyond <= 0:
            self._seen = []
            return False
        errors = [each[rank] * _error(by_rank[rank], sample_s[rank]) for rank in (first, last)]
        if beyond <= CLEAR * hypot(*errors):
            self._seen = [] if len(self._seen) >= MOST else self._seen
            return False
        sizes = balanced(self._batch_size, sample_s, self._least)
        if max(size * one for size, one in zip(sizes, sample_s, strict=True)) >= ends[last]:  # a sample is too much
            self._seen = []
            return False
        self.take(sizes)
        return True


def balanced(total: int, sample_s: Sequence[float], least: int) -> list[int]:
    """Divide `total` samples so that the rank which ends last ends as early as can be; `least` for each.

    sample_s: seconds that each rank needs for one.
    """
    speed = sum(1 / one for one in sample_s)
    sizes = [max(least, int(total / one / speed)) for one in sample_s]
    ranks = range(len(sizes))
    while sum(sizes) > total:
        sizes[max((rank for rank in ranks if sizes[rank] > least), key=lambda rank: sizes[rank] * sample_s[rank])] -= 1
    while sum(sizes) < total:
        sizes[min(ranks, key=lambda rank: (sizes[rank] + 1) * sample_s[rank])] += 1
    return sizes


def _error(seen: Sequence[float], middle: float) -> float:
    """The standard error of the median `middle` of what was seen."""
    return _ERROR * median(abs(one - middle) for one in seen) / sqrt(len(seen))
