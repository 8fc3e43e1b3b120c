"""Ctrl-C, SIGTERM and hang-ups: one asks the run to end in order, two end it now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Counts Ctrl-C, terminations and hang-ups while it is open. Only the main thread can hear them.

    hang_up: a terminal that is closed asks, too. terminated: the first was a SIGTERM, as a machine that is shut down or
    taken away sends to all.
    """

    def __init__(self, *, hang_up: bool = True) -> None:
        self.count = 0
        self.terminated = False
        self._hang_up = hang_up
        self._wake = threading.Event()
        self._before: dict[int, Callable[..., Any] | int | None] = {}

    def wait(self, at_most_s: float) -> None:
        """Wait so long, or until the next one comes."""
        self._wake.wait(at_most_s)
        self._wake.clear()

    def at_least(self, count: int) -> None:
        """Somebody has asked another way, once or twice: counted with those here, and not beside them."""
        self.count = max(self.count, count)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        asking = [signal.SIGINT, signal.SIGTERM]
        if self._hang_up and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else it was started by nohup
            asking.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._asked) for number in asking}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self.terminated |= number == signal.SIGTERM and not self.count
        self.count += 1
        self._wake.set()
