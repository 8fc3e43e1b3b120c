"""One level of a cache: records that were put there stay, until it is full.

Nothing makes room for anything: an epoch reads each record once, so what was used last is needed last, and a cache that
throws away would throw away what it will be asked for next. A part that stays serves its share of every epoch.

The index has an entry a record: where it is, its size and its CRC-32. It is mapped by all processes of the machine; an
entry is written after its bytes. A lock of the kernel on the quota, which goes with its holder, guards what is free.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from volary.data.records.records import FILE_LIMIT_BYTES, Bytes, Reading

ENTRY = np.dtype([("place", "<i8"), ("size", "<u4"), ("sum", "<u4")])  # place: of the first byte, + 1; 0: not there
HEADER_BYTES = 64  # of an index; its first 8 bytes: where the next record goes
QUOTA_BYTES = 8  # how many bytes all that share it have taken


def index_bytes(records: int) -> int:
    """The size in bytes of an index of so many records."""
    return HEADER_BYTES + records * ENTRY.itemsize


class Quota:
    """Bytes that may be taken, by all processes together. descriptor: of QUOTA_BYTES, opened by this object alone.

    make_room: removes what nobody uses, until at most so much is taken; gives what is taken then.
    """

    def __init__(self, descriptor: int, most_bytes: int, make_room: Callable[[int], int] | None = None) -> None:
        self.most_bytes, self._descriptor, self._thread = most_bytes, descriptor, threading.Lock()
        self._make_room = make_room
        weakref.finalize(self, os.close, descriptor)
        self._used = np.frombuffer(mmap.mmap(descriptor, QUOTA_BYTES), dtype=np.int64)

    @property
    def used_bytes(self) -> int:
        """Bytes that all workers of this machine use together."""
        return int(self._used[0])

    def take(self, size: int) -> bool:
        """Take so many bytes, if there are so many; within `locked`."""
        if self.used_bytes + size > self.most_bytes and self._make_room is not None:
            self.set(self._make_room(self.most_bytes - size))
        if self.used_bytes + size > self.most_bytes:
            return False
        self.set(self.used_bytes + size)
        return True

    @contextmanager
    def locked(self) -> Iterator[Quota]:
        """Lock the quota: nobody else takes or gives back meanwhile."""
        with self._thread:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield self
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def set(self, used_bytes: int) -> None:
        """Set what all use together; to be called while `locked` is held."""
        self._used[0] = used_bytes


class Shelf:
    """index, data: descriptors of files or of memory without a name. checked: records are compared when first read."""

    def __init__(self, index: int, data: int, records: int, quota: Quota, *, checked: bool) -> None:
        mapped = mmap.mmap(index, index_bytes(records))
        self._end = np.frombuffer(mapped, dtype=np.int64, count=1)
        self._entries = np.frombuffer(mapped, dtype=ENTRY, offset=HEADER_BYTES)
        self._places, self._sizes, self._sums = (self._entries[name] for name in ("place", "size", "sum"))
        self._data, self._quota = data, quota
        weakref.finalize(self, _close, index, data)
        self._to_check = np.ones(records, dtype=np.bool_) if checked else None
        self.full = False

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that holds the records' bytes."""
        return self._data

    def missing(self, records: Sequence[int]) -> Sequence[int]:
        """The records, of these, that are not kept here."""
        wanted = np.asarray(records, dtype=np.int64)
        absent: list[int] = wanted[self._places[wanted] == 0].tolist()
        return absent

    def has_all(self, records: Sequence[int]) -> bool:
        """Whether all of these records are kept here."""
        return bool(self._places[records].all())

    def get(self, record: int) -> bytes | None:
        """The record; None if it is not there, or no longer what was put there."""
        place = int(self._places[record])
        if not place:
            return None
        size = int(self._sizes[record])
        try:
            content = os.pread(self._data, size, place - 1) if 0 < size <= FILE_LIMIT_BYTES else b""
        except OSError:  # a place that cannot be: the index is damaged
            content = b""
        if not content:
            self._places[record] = 0
            return None
        if self._to_check is not None and self._to_check[record]:
            if len(content) != size or zlib.crc32(content) != self._sums[record]:
                self._places[record] = 0
                return None
            self._to_check[record] = False
        return content

    def forked(self) -> Reading:
        """Return a reader for a forked process, which changes nothing and raises LookupError for what is not there."""
        places, sizes = self._places.data, self._sizes.data
        data = memoryview(mmap.mmap(self._data, 0, prot=mmap.PROT_READ)) if self._to_check is None else None

        def read(record: int) -> Bytes:
            start = places[record] - 1
            content = data[start : start + sizes[record]] if data and start >= 0 else self.get(record)
            if not content:
                raise LookupError("the level has lost the record")
            return content

        return partial(map, read)

    def put(self, record: int, content: Bytes) -> bool:
        """Keep it, if there is room. Raises OSError if it cannot be written."""
        size = len(content)
        if self.full or not size:
            return False
        with self._quota.locked():
            if self._places[record]:  # another process was faster
                return True
            if not self._quota.take(size):
                self.full = True
                return False
            place = int(self._end[0])
            self._end[0] = place + size
        written = 0
        while written < size:
            written += os.pwrite(self._data, memoryview(content)[written:], place + written)
        self._sizes[record], self._sums[record] = size, zlib.crc32(content)
        if self._to_check is not None:
            self._to_check[record] = False
        self._places[record] = place + 1  # last: whoever sees it may read
        return True


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
