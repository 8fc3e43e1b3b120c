"""Threads for work that lets go of the interpreter's lock. None is left when there is nothing to do."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from weakref import WeakSet

ENDING_S = 5.0  # that a process waits at its end for pieces that are being done; storage may be stuck


class Threads:
    """Up to `count` threads that do what is submitted, oldest first, and end when all is done. count may change."""

    def __init__(self, count: int, name: str) -> None:
        self.count, self._name = count, name
        self._waiting: deque[Callable[[], None]] = deque()
        self._running: set[threading.Thread] = set()
        self._lock = threading.Lock()
        _ALL.add(self)

    def submit(self, pieces: Iterable[Callable[[], None]]) -> None:
        """Do each of them, on some thread. One that raises ends its thread, and another one takes its place."""
        with self._lock:
            self._waiting.extend(pieces)
            for _ in range(min(self.count - len(self._running), len(self._waiting))):
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._running.add(thread)
                thread.start()

    def end(self, at_most_s: float) -> bool:
        """Forget what has not begun, and wait for the rest, but not for ever. Whether no thread is left."""
        with self._lock:
            self._waiting.clear()
            running = list(self._running)
        until = time.monotonic() + at_most_s
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in running)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._running) > self.count:
                    self._running.discard(threading.current_thread())
                    return
                piece = self._waiting.popleft()
            try:
                piece()
            except BaseException:
                with self._lock:
                    self._running.discard(threading.current_thread())
                self.submit(())  # somebody else does the rest
                raise


_ALL: WeakSet[Threads] = WeakSet()


@atexit.register
def _end_all() -> None:
    # a thread that decodes while the interpreter goes away could take the process down with it
    for threads in list(_ALL):
        threads.end(ENDING_S)
