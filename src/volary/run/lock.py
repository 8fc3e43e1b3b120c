"""One writer a run: an advisory lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from volary.errors import RunError

_TAKE_WITHIN_S = 0.2


class RunLock:
    """Holds the run directory for one driver; `with RunLock(path): ...`. Raises RunError if another one has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _take(descriptor):
            holder = os.read(descriptor, 64).decode(errors="replace").strip()
            os.close(descriptor)
            raise RunError(f"{self._path.parent} is being written by process {holder or 'unknown'}")
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, only its holder is not named
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def _take(descriptor: int) -> bool:
    # tried for a moment: whoever asks `is_held` has the lock for some microseconds
    until = time.monotonic() + _TAKE_WITHIN_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(_TAKE_WITHIN_S / 20)
        else:
            return True


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at `path` at this moment."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
