"""Work in a thread beside the steps, in pieces with pauses: cores are for the steps, until somebody waits for it.

A low priority would not do: while such a thread has Python's lock and no core, the steps wait for both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading

    from volary.run.content import Content

PAUSES = 15  # times as long as a piece took of a core
PIECE_BYTES = 1 << 20


class Pace:
    """The pace of the thread that makes it. hurry: set by whoever waits for the work. worked_s: of a core, before."""

    def __init__(self, hurry: threading.Event, worked_s: float = 0.0) -> None:
        self._hurry, self._worked_s = hurry, time.thread_time() - worked_s

    def pause(self) -> bool:
        """Pause after a piece of work. Returns whether somebody waits for the work."""
        waited_for = self._hurry.wait((time.thread_time() - self._worked_s) * PAUSES)
        self._worked_s = time.thread_time()
        return waited_for


def paced(content: Content, pace: Pace) -> Content:
    """The same content, written at this pace."""
    if isinstance(content, bytes):
        return lambda file: _PacedFile(file, pace).write(content)
    return lambda file: content(_PacedFile(file, pace))


class _PacedFile:
    """A file that is written to, as `Content` does."""

    def __init__(self, file: Any, pace: Pace) -> None:
        self._file, self._pace = file, pace

    def write(self, data: Any) -> int:
        """Write the bytes of a buffer, with a pause after each piece."""
        values = memoryview(data).cast("B")
        for start in range(0, values.nbytes, PIECE_BYTES):
            self._file.write(values[start : start + PIECE_BYTES])
            self._pace.pause()
        return values.nbytes

    def flush(self) -> None:
        self._file.flush()
