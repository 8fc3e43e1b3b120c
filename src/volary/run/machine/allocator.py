"""How a worker's memory comes from the system: steps ask again and again for as much as they have let go of."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def keep_freed_memory() -> None:
    """Have the C library keep what is freed: handed back, it comes as fresh pages, some percent of a step."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every libc
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**25)  # the most that glibc takes
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def take_huge_pages() -> None:
    """Have torch ask for huge pages for large tensors, unless the user says otherwise; before torch has made one.

    Where the kernel has them on request they spare page faults, and what the processor must look up for each 4 kB.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
