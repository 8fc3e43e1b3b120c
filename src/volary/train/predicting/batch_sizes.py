"""How many samples go through the network at once: more, while that makes them quicker and memory lasts."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

MOST = 1024
_TIMES = 2  # that each size is measured: the machine may do something else meanwhile
_GAIN = 1.05  # by which a sample has to be quicker
_OF_MEMORY = 4  # a batch takes a quarter of what is free at most
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


class BatchSizes:
    """`size` is that of the next batch. It doubles from 1 on real batches, so that measuring costs no pass of its own.

    Two doublings without a gain end it, and the quickest size is kept. fixed: this size, and nothing is measured; 0:
    none. most: that can be asked for. clock: in seconds; by this thread's processor time, what else the machine
    computes decides nothing. Where the thread only waits for a device, a clock has to count that.
    """

    def __init__(self, fixed: int, most: int, clock: Callable[[], float] = time.thread_time) -> None:
        self._most = max(1, min(MOST, most))
        self.size, self.settled = fixed or 1, bool(fixed)
        self._fixed, self._best = bool(fixed), 1
        self._clock = clock
        self._each_s: dict[int, float] = {}  # seconds of a sample in batches of this size
        self._batches, self._began = -1, _peak_bytes()  # of this size; the very first one warms up, and says nothing

    @contextmanager
    def timed(self, rows: int) -> Iterator[None]:
        """A batch of `rows` takes the network meanwhile; of one that fails nothing is learnt."""
        began_s = self._clock()
        yield
        self.took(rows, self._clock() - began_s)

    def took(self, rows: int, seconds: float) -> None:
        """A batch of `rows` took the network so long."""
        if self.settled or rows < self.size:
            return
        self._batches += 1
        if not self._batches:
            return
        self._each_s[rows] = min(self._each_s.get(rows, seconds), seconds / rows)
        if self._batches < _TIMES:
            return
        self._batches = 0
        if self._each_s[rows] * _GAIN < self._each_s[self._best]:
            self._best = rows
        if rows >= 4 * self._best or 2 * rows > self._most or not self._fits():
            self.size, self.settled = self._best, True
        else:
            self.size = 2 * rows

    def smaller(self) -> bool:
        """Halve the size after a batch for which memory did not last; False if there is nothing to halve, or the size
        was asked for.
        """
        if self._fixed or self.size == 1:
            return False
        self.size, self.settled = self.size // 2, True
        return True

    def _fits(self) -> bool:
        """Whether twice as much as batches took so far is there."""
        return bool(2 * (_peak_bytes() - self._began) <= psutil.virtual_memory().available // _OF_MEMORY)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT
