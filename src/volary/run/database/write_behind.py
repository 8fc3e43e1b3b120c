"""Writes that a thread of their own makes, one after the other: whoever asks for one waits for no disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable


class WriteBehind:
    """Lets at most `most` records wait, and refuses more. After a write that raised it writes nothing more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()
        self._records = 0  # that wait, or are being written
        self._ended = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)  # a disk may hang for ever
        self._thread.start()

    def put(self, write: Callable[[], None], records: int) -> bool:
        """Have so many records written; False: too many wait already. Raises what an earlier write raised."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._records and self._records + records > self._most:
                return False
            self._waiting.append((write, records))
            self._records += records
            self._changed.notify_all()
            return True

    def wait(self, within_s: float) -> int:
        """Wait until all is written, or that long; return how many records are not written."""
        until = time.monotonic() + within_s
        with self._changed:
            while self._records and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return self._records

    def end(self) -> None:
        """End the thread once it has written what it is at."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if not self._records:
            self._thread.join()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if not self._waiting:
                    return
                write, records = self._waiting.popleft()
            try:
                write()
            except Exception as error:  # raised where the next write is asked for
                self._failure = error
            with self._changed:
                if self._failure is not None:
                    self._waiting.clear()
                self._records = 0 if self._failure is not None else self._records - records
                self._changed.notify_all()
