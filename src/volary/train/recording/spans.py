"""When a gradient was ready, sent, received and applied, and what compute waited: kept for some steps, told in full."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from volary.session.values.period import Period

FIRST, LAST = 2, 11  # of an attempt: the first step warms up
TOGETHER = 2  # in a row, so that what travels under the next forward shows
EVERY = Period(100, "steps")
LATE_STEPS = 4  # a step's spans may come until this many steps later
MOST_WAITING = 20_000  # about 1.5 MB; a beat takes them away four times a second
_BEFORE_STEPS = frozenset({"broadcast"})  # happens once an attempt, around its first step


class Spans:
    """One worker's spans. Any thread may add one; the pulse's thread takes them.

    recording: whether there may be something to add now, for this step or for one that ended while its exchange goes
    on. A guard for callers that would have to read a clock; `add` itself knows which steps are recorded.
    """

    def __init__(self) -> None:
        self.recording = True
        self._period, self._steps_per_epoch = EVERY, 1
        self._first = 0  # step of this attempt; 0 before it
        self._steps: frozenset[int] = frozenset()
        self._always = _BEFORE_STEPS
        self._waiting: deque[tuple[int, str, str, float, float, int]] = deque(maxlen=MOST_WAITING)
        self._wall_s = _wall_clock_ahead_s()

    def follow(self, period: Period, steps_per_epoch: int) -> None:
        """Record steps 2 to 11 of an attempt, and then two whenever a `period` ends; nothing at all if it is never."""
        self._period, self._steps_per_epoch = period, steps_per_epoch
        if period.unit == "never":
            self._always = frozenset()
            self.recording = False

    def begin(self, step: int) -> None:
        """Step `step` begins (1 is a run's first). Called by the training thread, before any of its spans."""
        if self._period.unit == "never":
            return
        self._first = self._first or step
        steps = {old for old in self._steps if old > step - LATE_STEPS}
        self._steps = frozenset(steps | {step}) if self._is_due(step) else frozenset(steps)
        self.recording = bool(self._steps) or step == self._first

    def add(self, step: int, kind: str, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        """Keep a span of `step`, if that step is recorded.

        kind: ready (from where backward began to where the gradient is whole), exchange, update, wait, broadcast, or
        phase. name: of the bucket, the layer or the phase. start_s, end_s: of `time.perf_counter`.
        """
        if step in self._steps or kind in self._always:
            self._waiting.append((step, kind, name, start_s, end_s, size_bytes))

    def take(self) -> list[list[Any]]:
        """Take everything not taken yet, as plain values; times in seconds since 1970, on this machine's clock."""
        waiting, ahead_s = self._waiting, self._wall_s
        taken = [waiting.popleft() for _ in range(len(waiting))]
        if self._period.unit == "never":  # what came before that was known
            return []
        return [[*what, start_s + ahead_s, end_s + ahead_s, size] for *what, start_s, end_s, size in taken]

    def _is_due(self, step: int) -> bool:
        if FIRST <= step - self._first + 1 <= LAST:
            return True
        ends, per_epoch = self._period.ends, self._steps_per_epoch
        return any(ends(step - after, per_epoch) for after in range(min(TOGETHER, step)))


def _wall_clock_ahead_s() -> float:
    """The seconds to add to `perf_counter` for the time since 1970: the same on all ranks of a machine, to
    microseconds.

    Measured a few times, as the thread may be put to sleep between two looks; the quickest try is the best.
    """
    tries = [(time.perf_counter(), time.time(), time.perf_counter()) for _ in range(5)]
    before, wall, after = min(tries, key=lambda one: one[2] - one[0])
    return wall - (before + after) / 2
