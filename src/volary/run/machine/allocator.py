"""How a worker's memory comes from the system: steps ask again and again for as much as they have let go of."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGE_BYTES = 2**19


def keep_freed_memory() -> None:
    """Have the C library keep what is freed: handed back, it comes as fresh pages, some percent of a step."""
    _set_thresholds(2**25, 2**31 - 1)  # the most that glibc takes


def return_freed_memory() -> None:
    """Have it return large blocks after all: those of a worker to which memory is worth more than time."""
    _set_thresholds(_LARGE_BYTES, _LARGE_BYTES)
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def take_huge_pages() -> None:
    """Have torch ask for huge pages for large tensors, unless the user says otherwise; before torch has made one.

    Where the kernel has them on request they spare page faults, and what the processor must look up for each 4 kB.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def _set_thresholds(mapped_bytes: int, trimmed_bytes: int) -> None:
    """Blocks of `mapped_bytes` are mapped one by one; so much that is free at the heap's end is returned."""
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, mapped_bytes)
        mallopt(_TRIM_THRESHOLD, trimmed_bytes)


def _of_glibc(name: str) -> ctypes._NamedFuncPointer | None:
    """A function of the C library that not every one has."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
