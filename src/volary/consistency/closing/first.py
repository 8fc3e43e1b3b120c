"""Closes a clock with the first contributions that are in, and without those that come later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from volary.consistency.closing.clocks import Clocks
from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate

SEEN = 32  # updates whose times a deadline is made of
FEWEST = 5  # of them, before there is one
ROOM = 1.5  # times their median


class FirstInCloser:
    """A clock closes once `k` contributions are in, or at a deadline with those there are, at least one; a
    `volary.server.roster.closing.Closer`.

    k: None: of all who take part, all but one. deadline_s: seconds since the clock began; None: there is none. With
    `measured` it follows from the times that the newest clocks took to have k contributions.
    """

    def __init__(self, first: int, k: int | None, deadline_s: float | None, *, measured: bool) -> None:
        self._clocks, self._k, self._deadline_s, self._measured = Clocks(first), k, deadline_s, measured
        self._took_s: deque[float] = deque(maxlen=SEEN)
        self._began_at: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """Seconds after which a clock closes at the latest, if anything is in."""
        if self._measured and len(self._took_s) >= FEWEST:
            return ROOM * median(self._took_s)
        return self._deadline_s

    @property
    def _enough(self) -> int:
        """Contributions that close a clock."""
        return max(1, len(self._clocks.here) - 1) if self._k is None else self._k

    def joined(self, worker: int, now: float) -> None:
        """Let the worker be among the first from its next clock on."""
        self._clocks.joined(worker)

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Close what fewer workers may now close; what the worker finished counts."""
        self._clocks.left(worker)
        return list(self._due(now))

    def next_clock(self, worker: int, now: float) -> int | None:
        """The worker's next clock, after those that are closed."""
        clock = self._clocks.take(worker)
        if clock == self._clocks.clock and self._began_at is None:
            self._began_at = now
        return clock

    @property
    def held_by(self) -> int | None:
        """A clock that closes lets all continue."""
        return None

    def oldest(self, clock: int) -> int:
        """The clock itself: each earlier clock is one update."""
        return clock

    def computed(self, contribution: Contribution, samples: int, finite: bool, now: float) -> Sequence[DueUpdate]:
        self._clocks.computed(contribution, finite)
        return ()

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        self._clocks.finished(contribution, samples)
        return list(self._due(now))

    def tick(self, now: float) -> Sequence[DueUpdate]:
        """Close what a deadline may have closed."""
        return list(self._due(now))

    def _due(self, now: float) -> Iterator[DueUpdate]:
        while self._clocks.pending and self._is_due(now):
            if self._began_at is not None:
                self._took_s.append(now - self._began_at)
            step = self._clocks.close()
            if len(step.contributions) < self._enough:  # at the end of a run, or a deadline: it weighs what it is of
                step = replace(step, whole=False)
            self._began_at = now if self._clocks.begun() else None
            yield step

    def _is_due(self, now: float) -> bool:
        begun = self._clocks.begun()
        inside = sum(known.finished and known.useful for known in begun)
        may_arrive = sum(not known.finished for known in begun) + len(self._clocks.awaited())
        if inside >= min(self._enough, inside + may_arrive):
            return True
        late = self.deadline_s is not None and self._began_at is not None and now - self._began_at >= self.deadline_s
        return late and inside > 0
