"""Processes that somebody else has forked for this one: adopted, they are children of this process like all others."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LOOK_S = 0.005


class Adoption:
    """Asks the kernel, as long as anybody wants it, to make this process the parent of those below it without one."""

    def __init__(self) -> None:
        self._wanted = 0
        self._before = 0
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Somebody wants it; False if this kernel does not know of it."""
        with self._lock:
            if not self._wanted:
                before, call = ctypes.c_int(), ctypes.CDLL(None).prctl
                if call(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)) or call(_PR_SET_CHILD_SUBREAPER, 1):
                    return False
                self._before = before.value
            self._wanted += 1
            return True

    def end(self) -> None:
        """Release it for one user; the last restores the setting of before."""
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, self._before)


class Adopted:
    """A child of this process that it has not started, as `subprocess.Popen` shows those that it has."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its status if it has ended: the negative of a signal that ended it; 0 if somebody else took it."""
        if self._code is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = 0
            else:
                self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def wait(self, timeout: float) -> int:
        """Wait for its end; return its status. Raises TimeoutExpired if it does not end within so many seconds."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_LOOK_S)
        return code

    def terminate(self) -> None:
        """Ask it to end, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
