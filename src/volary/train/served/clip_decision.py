"""A contribution of a loop of one's own that may be clipped: its Done leaves once the loop has said whether it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.server.protocol.from_members import Done

if TYPE_CHECKING:
    from volary.server.protocol.norms import ClipNorm


class ClipDecision:
    """Decides on one contribution after the other. say: sends Done. Servers may hold a contribution before that."""

    def __init__(self, say: Callable[[Done], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._open: int | None = None  # the clock that waits for the loop
        self._held: Done | None = None  # what is said of it then
        self._clip: tuple[int, ClipNorm | None] = (-1, None)  # of the newest that was decided before it was held

    def open(self, clock: int) -> None:
        """Let the contribution at `clock` wait for `decide`."""
        with self._lock:
            self._open, self._held = clock, None

    def held(self, clock: int, waited_ms: int) -> None:
        """All servers hold it, or there is nothing to hold. From any thread."""
        with self._lock:
            done = Done(clock, waited_ms, self._clip[1] if self._clip[0] == clock else None)
            if clock == self._open:
                self._held = done
                return
        self._say(done)

    def decide(self, clock: int, clip: ClipNorm | None) -> None:
        """The loop takes its step, whose gradient is clipped so, or not at all; without effect if it is not open."""
        with self._lock:
            if clock != self._open:
                return
            held, self._open, self._clip = self._held, None, (clock, clip)
        if held is not None:
            self._say(Done(held.clock, held.waited_ms, clip))
