"""The time of day as the processes of a run write it down: set once, and from then on nobody sets it.

Whoever changes the machine's clock while a run trains (a time server, an administrator) changes no duration, no rate
and no order of events. Bounds are of `time.monotonic` everywhere.
"""

from __future__ import annotations

import os
import time

_ahead_s = 0.0


def now_s() -> float:
    """Seconds since 1970, by the machine's clock as it was set when this process, or its newest run, began."""
    return at(running_s())


def at(running: float) -> float:
    """The seconds since 1970 at which `running_s()` was, or will be, so much."""
    return running + _ahead_s


def set_by_machine() -> None:
    """Take the machine's clock as it is now: a run begins."""
    global _ahead_s
    _ahead_s = time.time() - running_s()


def running_s() -> float:
    """A clock that only runs, also while the machine sleeps, where it knows of one that does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


set_by_machine()
os.register_at_fork(after_in_child=set_by_machine)
