"""One writer a run: an advisory lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from pathlib import Path
from types import TracebackType

from volary.errors import RunError

_log = logging.getLogger(__name__)
_TAKE_WITHIN_S = 0.2
_LEFT_WITHIN_S = 30.0  # workers whose driver was killed end meanwhile, and with them its lock


class RunLock:
    """Holds the run directory for one driver; `with RunLock(path): ...`. Raises RunError if another one has it.

    descriptor: whoever inherits it holds the run, too (see `volary.driver.orphans`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = -1

    def __enter__(self) -> RunLock:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        holder = os.read(descriptor, 64).decode(errors="replace").strip()
        within_s = _TAKE_WITHIN_S
        if not _take(descriptor, within_s) and not _runs(holder):
            _log.warning("%s: process %s is gone; waiting until its workers have ended", self._path.parent, holder)
            within_s = _LEFT_WITHIN_S
        if not _take(descriptor, within_s):
            os.close(descriptor)
            raise RunError(f"{self._path.parent} is being written by process {holder or 'unknown'}")
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, only its holder is not named
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self.descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Hold it no more; once is enough."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def take_over(self) -> None:
        """Hold the run in place of a process that is lost, though it may hold the lock: by a new file in its place."""
        own = self._path.with_name(f".{self._path.name}-{os.getpid()}")
        descriptor = os.open(own, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        own.replace(self._path)
        self.descriptor = descriptor

    @property
    def is_taken_over(self) -> bool:
        """Whether another process holds the run now, by another file: this one may do nothing more to it."""
        with contextlib.suppress(FileNotFoundError):
            return not os.path.samestat(self._path.stat(), os.fstat(self.descriptor)) and is_held(self._path)
        return False

    def put_back(self) -> bool:
        """Hold it anew if somebody has removed its file; whether that was so. Raises RunError if another one has it."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self.descriptor)):
                return False
        removed = self.descriptor
        self.__enter__()
        os.close(removed)
        return True


def _runs(holder: str) -> bool:
    """Whether the process of this number runs on this machine; yes, if it cannot be told."""
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True


def _take(descriptor: int, within_s: float) -> bool:
    # tried for a moment: whoever asks `is_held` has the lock for some microseconds
    until = time.monotonic() + within_s
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
