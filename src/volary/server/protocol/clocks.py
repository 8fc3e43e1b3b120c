"""A set of clocks that only grows, kept as runs of neighbours: those that follow each other take no more memory."""

from __future__ import annotations

from bisect import bisect_right


class ClockSet:
    """Whole numbers; as much memory as there are runs of them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # the first number that is not in the run

    def __contains__(self, clock: int) -> bool:
        run = bisect_right(self._starts, clock) - 1
        return run >= 0 and clock < self._ends[run]

    def add(self, clock: int) -> None:
        """Add a clock; one that is in the set already changes nothing."""
        run = bisect_right(self._starts, clock)  # the run that begins after it
        if run and clock < self._ends[run - 1]:
            return
        follows = run > 0 and self._ends[run - 1] == clock
        precedes = run < len(self._starts) and self._starts[run] == clock + 1
        if follows and precedes:
            self._ends[run - 1] = self._ends[run]
            del self._starts[run], self._ends[run]
        elif follows:
            self._ends[run - 1] += 1
        elif precedes:
            self._starts[run] = clock
        else:
            self._starts.insert(run, clock)
            self._ends.insert(run, clock + 1)

    @property
    def runs(self) -> int:
        """How many ranges of clocks are stored."""
        return len(self._starts)
