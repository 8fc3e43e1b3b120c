"""Wakes a thread that waits for work; a condition does, too, and costs ten times as much."""

from __future__ import annotations

import threading


class Wakeup:
    """Wakes one thread that waits. The next `wait` returns at once after a ring, however many there were."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Wake who waits. From any thread."""
        try:
            self._silent.release()
        except RuntimeError:  # it has rung already
            return

    def wait(self) -> None:
        """Block until another thread wakes this one."""
        self._silent.acquire()
