"""Readers: threads that have storage bring what is decoded next, in the order in which it lies there.

They help where reading waits for a disk, and would only cost time where all is in the page cache. The kernel knows: it
counts what a thread has brought from a disk. Readers begin to work when a decoder had to, and stop when for a while
they themselves brought nothing. With records of a store they always work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from volary.data.loading.disk_reads import disk_reads
from volary.data.loading.threads import Threads
from volary.data.records.records import Records

READERS = 8  # measured: one or 32 of them bring small cold files at half the rate
QUIET = 64  # pieces of work in which nothing came from a disk, until they stop


class Readers:
    """Tells `records` what is expected, while that helps."""

    def __init__(self, records: Records, count_disk_reads: Callable[[], int] = disk_reads) -> None:
        """count_disk_reads: of the thread that calls it."""
        self.working = records.remote
        self._records, self._disk_reads = records, count_disk_reads
        self._threads = Threads(READERS, "read")
        self._quiet = 0

    def end(self, at_most_s: float) -> bool:
        """Forget what is expected, and wait for what is being read. Whether nobody reads any more."""
        return self._threads.end(at_most_s)

    def expect(self, indices: Sequence[int]) -> None:
        """Read these records into the page cache or the cache, in the background, in ascending order."""
        if self.working:
            ordered = sorted(indices)
            size = max(1, -(-len(ordered) // READERS))
            starts = range(0, len(ordered), size)
            self._threads.submit(partial(self._bring, ordered[start : start + size]) for start in starts)

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
