"""Samples this worker's usage and the length of its queues every few seconds, in the heartbeat's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from volary.run.machine import clock
from volary.run.machine.usage import UsageMeter

FIRST_S = 0.5  # a process that has only just begun has nothing to show
EVERY_S = 2.0  # then; later a hundredth of what the worker's attempt has lasted
LONGEST_S = 15.0
SHARE = 0.01


class UsageSamples:
    """One worker's usage. whole_machine: also of its machine, which one worker of each does.

    queues: by name, tells how much waits there; any thread may ask.
    """

    def __init__(self, *, whole_machine: bool) -> None:
        self.queues: dict[str, Callable[[], int]] = {}
        self._meter = UsageMeter(whole_machine=whole_machine)
        self._began = self._looked = time.monotonic()
        self._wait_s = FIRST_S

    def take(self, *, ending: bool = False) -> list[tuple[float, str, float]]:
        """(at, name, value) if it is time for a look; `at` in seconds since 1970.

        ending: there is no later one, so a worker that was never looked at is looked at now.
        """
        now = time.monotonic()
        never = self._looked == self._began
        if now - self._looked < self._wait_s and not (ending and never):
            return []
        self._looked, at = now, clock.now_s()
        self._wait_s = min(LONGEST_S, max(EVERY_S, SHARE * (now - self._began)))
        found = self._meter.look() | {f"queue_{name}": float(depth()) for name, depth in self.queues.items()}
        return [(at, name, value) for name, value in found.items()]
