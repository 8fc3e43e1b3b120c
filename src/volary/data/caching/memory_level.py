"""The level in memory: one copy for all processes of a user on a machine, without a name that could be left behind.

It is memory of whoever was first. The others find it among the open files of their processes, which the kernel shows to
processes of the same user. It goes with the last process that has it open.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from volary.data.caching.shelf import QUOTA_BYTES, Quota, Shelf, index_bytes

_READY_S = 5.0  # that another process may take from making memory to giving it its size


def memory_shelf(fingerprint: str, records: int, most_bytes: int, budget: str) -> Shelf:
    """The shelf of these records. budget: names what all parts of a session share their memory by."""
    quota = Quota(_shared(f"quota {budget} {most_bytes}", QUOTA_BYTES), most_bytes)
    key = f"{fingerprint} {budget} {most_bytes}"
    index = _shared(f"index {key}", index_bytes(records))
    data = _shared(f"data {key}", most_bytes)
    return Shelf(index, data, records, quota, checked=False)


def _shared(what: str, size_bytes: int) -> int:
    """Memory of that name, zeroed if it is new: a descriptor of its own, as locks are by descriptor."""
    name = f"volary-cache-{hashlib.sha256(what.encode()).hexdigest()[:32]}"
    if sys.platform != "linux":
        raise OSError("memory without a name is shared on Linux alone")
    made = -1
    while True:
        there = _found(name)
        if not there:
            made = os.memfd_create(f"{name}-{time.monotonic_ns():020}")
            os.ftruncate(made, size_bytes)
            continue
        if made >= 0 and there[0] == f"/proc/{os.getpid()}/fd/{made}":  # the oldest, should others have been as quick
            return made
        with suppress(FileNotFoundError):  # whoever had it open has ended
            descriptor = _opened(there[0], size_bytes)
            if made >= 0:
                os.close(made)
            return descriptor


def _opened(path: str, size_bytes: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    until = time.monotonic() + _READY_S
    while os.fstat(descriptor).st_size != size_bytes:
        if time.monotonic() > until:
            os.close(descriptor)
            raise OSError(f"{path} has not got its size within {_READY_S:g} s")
        time.sleep(0.001)
    return descriptor


def _found(name: str) -> list[str]:
    """Paths at which open files of that name can be opened, the oldest first."""
    found: list[tuple[str, str]] = []
    for process in Path("/proc").glob("[1-9]*"):
        for file in _open_files(process):
            with suppress(OSError):  # it has been closed
                target = os.readlink(file)  # noqa: PTH115 -- what it gives is no path
                if target.startswith(f"/memfd:{name}-"):
                    found.append((target, file))
    return [path for _, path in sorted(found)]


def _open_files(process: Path) -> list[str]:
    """The open files of a process of this user; none if it is another user's, or has ended."""
    try:
        if process.stat().st_uid != os.getuid():
            return []
        return [f"{process}/fd/{number}" for number in os.listdir(process / "fd")]  # noqa: PTH208 -- names alone
    except OSError:
        return []
