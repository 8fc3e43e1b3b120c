"""Time that is only counted, and all that happens in it, in one order that a seed decides."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class World:
    """A heap of (time, sequence, event). now: seconds since it began; nothing takes time but what says so."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a time that is not before now; of two calls at one time the first that was asked for comes first."""
        self._sequence += 1
        heapq.heappush(self._events, (max(time_s, self.now), self._sequence, call, arguments))

    def after(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call `delay_s` from now."""
        self.at(self.now + delay_s, call, *arguments)

    def about(self, mean_s: float) -> float:
        """A random time with this mean, mostly short and now and then long."""
        return self.random.expovariate(1 / mean_s)

    def run(self, over: Callable[[], bool], limit_s: float) -> bool:
        """Let everything happen until `over`; False if it is not within `limit_s`, or nothing happens any more."""
        events = self._events
        while not over():
            if not events or events[0][0] > limit_s:
                return False
            self.now, _, call, arguments = heapq.heappop(events)
            call(*arguments)
        return True
