"""Readers: threads that have storage bring what is decoded next, in the order of storage.

They help where reading waits for a disk, and would only cost time where all is in the page cache. The kernel knows: it
counts what a thread has brought from a disk. Readers begin to work when a decoder had to, and stop when for a while
they themselves brought nothing. With records of a store they always work. How many there are is measured
(`loading/reader_count.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.reader_count import FIRST, ReaderCount
from volary.data.loading.threads import Threads
from volary.data.order import WINDOW_BLOCKS
from volary.data.records.records import Records

PIECE = 8  # records that a reader asks for at a time: of a store all at once
QUIET = 64  # pieces of work in which nothing came from a disk, until they stop


class Readers:
    """Tells `records` what is expected, while that helps."""

    def __init__(self, records: Records, count_disk_reads: Callable[[], int] = disk_reads) -> None:
        """count_disk_reads: of the thread that calls it."""
        self.working = records.remote
        self._records, self._disk_reads = records, count_disk_reads
        self.count = ReaderCount(WINDOW_BLOCKS * records.block)
        self._threads = Threads(FIRST, "read")
        self._quiet = 0
        self._taken_s = 0.0

    def end(self, at_most_s: float) -> bool:
        """Forget what is expected, and wait for what is being read. Whether nobody reads any more."""
        return self._threads.end(at_most_s)

    def expect(self, indices: Sequence[int]) -> None:
        """Read these records into the page cache or the cache, in the background, in ascending order."""
        if self.working:
            ordered = sorted(indices)
            size = min(PIECE, max(1, -(-len(ordered) // FIRST)))
            starts = range(0, len(ordered), size)
            self._threads.submit(partial(self._bring, ordered[start : start + size]) for start in starts)

    def took(self, waited_s: float, samples: int, readers: int) -> None:
        """The consumer has taken a batch, for which it had to wait so long. readers: there were when it began."""
        before_s, self._taken_s = self._taken_s, time.perf_counter()
        if self.working and before_s:
            self.count.took(self._taken_s - before_s, waited_s, samples, readers)
            self._threads.count = self.count.number

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around reads that should find everything at hand: if they do not, readers work from now on."""
        before = self._disk_reads()
        yield
        if self._disk_reads() > before:
            self.begin()

    def begin(self) -> None:
        """Something had to be brought from a disk: work from now on."""
        self.working, self._quiet = True, 0

    def _bring(self, indices: Sequence[int]) -> None:
        before = self._disk_reads()
        self._records.expect(indices)
        self._quiet = 0 if self._disk_reads() > before else self._quiet + 1
        if self._quiet >= QUIET and not self._records.remote:
            self.working = False
