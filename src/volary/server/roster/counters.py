"""Counts of what happens too often to be told one by one."""

from __future__ import annotations

from collections import Counter

from volary.server.protocol.from_members import Beat

EVERY_S = 1.0  # how often they are handed over
NOBODY = -1  # where a count is of no worker, or of no server


class RosterCounters:
    """(kind, rank, server, value) to how often. Kinds: staleness, late, refused (of servers); dropped, stolen; wait
    (value: milliseconds, up to the next power of 2).
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, int, int]] = Counter()
        self._handed_over_at = 0.0

    def beat(self, server: int, report: Beat) -> None:
        """Take in what a server's heartbeat has counted."""
        for worker, staleness, times in report.staleness:
            self._counts["staleness", worker, server, staleness] += times
        for worker, times in report.late:
            self._counts["late", worker, server, 0] += times
        for times in report.refused.values():
            self._counts["refused", NOBODY, server, 0] += times

    def count(self, kind: str, worker: int, value: int = 0) -> None:
        """Count one event more of a worker."""
        self._counts[kind, worker, NOBODY, value] += 1

    def waited(self, worker: int, ms: int) -> None:
        """A worker stood still for so long."""
        self.count("wait", worker, 1 << max(0, ms - 1).bit_length() if ms else 0)

    def due(self, now: float) -> bool:
        """Whether it is time to hand them over, and there are any."""
        return bool(self._counts) and now - self._handed_over_at >= EVERY_S

    def taken(self, now: float) -> list[list[str | int]]:
        """Rows of kind, rank, server, value, count: what is new since the last call."""
        rows: list[list[str | int]] = [[*key, times] for key, times in self._counts.items()]
        self._counts.clear()
        self._handed_over_at = now
        return rows
