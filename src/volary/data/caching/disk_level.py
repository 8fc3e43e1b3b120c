"""The level on disk: a folder a data set, which stays for later runs. What nobody uses makes room, oldest first.

In `path`: `usage` (how much all have taken), and for each data set `<fingerprint>/index.bin` and `data.bin`. Nothing
else is ever touched. A lock of the kernel on the index, which goes with its holder, says that it is in use.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

from volary.data.caching.shelf import QUOTA_BYTES, Quota, Shelf, index_bytes
from volary.errors import DataError

_DATA_SET = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FILES = ("index.bin", "data.bin")


def disk_shelf(fingerprint: str, records: int, most_bytes: int, path: Path) -> Shelf:
    """The shelf of these records in `path`. Raises DataError if nothing can be written there."""
    folder = path / fingerprint
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        usage = os.open(path / "usage", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(usage, QUOTA_BYTES)
        quota = Quota(usage, most_bytes, partial(make_room, path))
        with quota.locked():
            folder.mkdir(mode=0o700, exist_ok=True)
            index, data = (os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in _FILES)
            fcntl.flock(index, fcntl.LOCK_SH)
            if os.fstat(index).st_size not in (0, index_bytes(records)):
                os.ftruncate(index, 0)  # cut: nothing of it is believed
            os.ftruncate(index, index_bytes(records))
            os.utime(index)
            quota.set(make_room(path, most_bytes))  # what is there may be more than may be now
    except OSError as problem:
        raise DataError(f"{path}: cannot be a cache ({problem.strerror or problem}); accepted: a folder") from problem
    return Shelf(index, data, records, quota, checked=True)


def make_room(path: Path, most_bytes: int) -> int:
    """Remove data sets that nobody uses, the longest unused first, until at most so much is. What is then."""
    sets = [folder for folder in path.iterdir() if _DATA_SET.fullmatch(folder.name) and (folder / _FILES[0]).exists()]
    sets.sort(key=lambda folder: (folder / _FILES[0]).stat().st_mtime_ns)
    taken = {folder: _length(folder / _FILES[1]) for folder in sets}
    for folder in sets:
        if sum(taken.values()) <= most_bytes:
            break
        if _removed(folder):
            del taken[folder]
    return sum(taken.values())


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _removed(folder: Path) -> bool:
    """Whether nobody used it."""
    index = os.open(folder / _FILES[0], os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody's file is in it
            folder.rmdir()
        return True
    finally:
        os.close(index)
