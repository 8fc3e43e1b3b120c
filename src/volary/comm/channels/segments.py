"""Memory of this process that others of this machine may map: without a name, found by where a payload lies.

It goes with the last process that maps it, however that ends. It cannot shrink: a reader never faults on it.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import fcntl
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from typing import NamedTuple

from volary.comm.control.errors import ConnectionLost
from volary.comm.memory.shared_memory import available_bytes

_SEALS = getattr(fcntl, "F_SEAL_SHRINK", 0) | getattr(fcntl, "F_SEAL_GROW", 0)


def why_not() -> str:
    """Empty where memory can be shared so, else the sentence that says why it cannot."""
    return "" if sys.platform == "linux" and _SEALS else f"memory without a name is Linux's; this is {sys.platform}"


class SegmentHandle(NamedTuple):
    """number: of this process's segments, never used twice. descriptor: by which others of this user can open it."""

    number: int
    start: int
    size_bytes: int
    descriptor: int


class _Segments:
    """All segments of this process, by where they begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[SegmentHandle] = []
        self._gone: deque[SegmentHandle] = deque()
        self._last = 0

    def create(self, size_bytes: int) -> memoryview:
        available = available_bytes()
        if size_bytes > available:
            raise OSError(errno.ENOMEM, f"{size_bytes:,} bytes are needed and {available:,} are available")
        descriptor = os.memfd_create("volary", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(1, size_bytes))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        mapped = mmap.mmap(descriptor, max(1, size_bytes))
        with self._lock:
            self._forget_gone()
            self._last += 1
            segment = SegmentHandle(self._last, _address(memoryview(mapped)), len(mapped), descriptor)
            bisect.insort(self._known, segment, key=lambda one: one.start)
        weakref.finalize(mapped, self._let_go, segment)
        return memoryview(mapped)[:size_bytes]

    def find(self, payload: memoryview) -> tuple[SegmentHandle, int] | None:
        if payload.readonly:
            return None
        address = _address(payload)
        with self._lock:
            self._forget_gone()
            at = bisect.bisect_right(self._known, address, key=lambda one: one.start) - 1
            segment = self._known[at] if at >= 0 else None
        if segment is None or address + payload.nbytes > segment.start + segment.size_bytes:
            return None
        return segment, address - segment.start

    def _let_go(self, segment: SegmentHandle) -> None:
        self._gone.append(segment)  # without the lock: memory may be collected in a thread that holds it
        os.close(segment.descriptor)

    def _forget_gone(self) -> None:
        while self._gone:
            self._known.remove(self._gone.popleft())


_ours = _Segments()


def memory(size_bytes: int) -> memoryview:
    """Zeroed memory, a descriptor's worth: take much at once and use parts of it. Where memory cannot be shared, plain.

    Raises OSError if there is not so much.
    """
    return memoryview(bytearray(size_bytes)) if why_not() else _ours.create(size_bytes)


def find(payload: memoryview) -> tuple[SegmentHandle, int] | None:
    """The segment in which all of `payload` lies, and its offset there; None if there is none."""
    return _ours.find(payload)


def attach(process: int, descriptor: int, size_bytes: int) -> memoryview:
    """Map the segment of another process of this user. Raises ConnectionLost if it is none, or gone."""
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as problem:
        raise ConnectionLost(f"the memory of process {process} cannot be shared: {problem}") from None
    try:
        if fcntl.fcntl(opened, fcntl.F_GET_SEALS) & _SEALS != _SEALS or os.fstat(opened).st_size != size_bytes:
            raise ConnectionLost(f"the memory of process {process} is not what was announced")
        return memoryview(mmap.mmap(opened, size_bytes))
    except (OSError, ValueError, OverflowError) as problem:
        raise ConnectionLost(f"the memory of process {process} cannot be shared: {problem}") from None
    finally:
        os.close(opened)


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
