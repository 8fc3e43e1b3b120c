"""Makes an update of each contribution alone, and lets nobody run far ahead."""

from __future__ import annotations

from collections.abc import Sequence

from volary.consistency.closing.alone import ImmediateCloser
from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate


class BoundedCloser(ImmediateCloser):
    """A worker may begin a clock once all who take part have finished those that are more than `staleness` before it.

    A `volary.server.roster.closing.Closer`. first: the first clock of every worker, and the updates that there were
    before.
    """

    def __init__(self, first: int, staleness: int) -> None:
        super().__init__(first)
        self._staleness = staleness
        self._finished: dict[int, int] = {}  # by worker that takes part, the clock up to which all of its are
        self._at: dict[int, int] = {}  # by clock, how many workers have finished all before it: a few, close together
        self._updates = first
        self._newest: dict[int, int] = {}  # by clock, the newest update that is of a contribution to it
        self._needed = (first, first)  # of all clocks before the first of these, the newest update is the second

    def joined(self, worker: int, now: float) -> None:
        """Let the worker begin where the slowest is: nobody waits for what it has not taken part in."""
        slowest = min(self._at) if self._at else max(self._next.values(), default=self._first)
        clock = max(self._next.get(worker, self._first), slowest)
        super().joined(worker, now)
        self._next[worker] = clock
        self._finish(worker, clock)

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Forget the worker, for which nobody waits."""
        self._finish(worker, None)
        return super().left(worker, now)

    def next_clock(self, worker: int, now: float) -> int | None:
        """The worker's own, unless somebody is too far behind."""
        if min(self._at) < self._next[worker] - self._staleness:
            return None
        return super().next_clock(worker, now)

    @property
    def held_by(self) -> int | None:
        """The clock of the slowest."""
        return min(self._at, default=None)

    def oldest(self, clock: int) -> int:
        """The newest update of a clock that is more than `staleness` before: all of those are made."""
        before, number = self._needed
        while before < clock - self._staleness:
            number = max(number, self._newest.pop(before, 0))
            before += 1
        self._needed = before, number
        return number

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        """Make an update of the contribution, unless it has nothing to add."""
        self._updates += 1
        self._newest[contribution.clock] = self._updates
        if contribution.worker in self._finished:
            self._finish(contribution.worker, contribution.clock + 1)
        return super().done(contribution, samples, now)

    def _finish(self, worker: int, clock: int | None) -> None:
        """The worker has finished all before `clock`; None: it takes part no more."""
        if (before := self._finished.pop(worker, None)) is not None:
            self._at[before] -= 1
            if not self._at[before]:
                del self._at[before]
        if clock is not None:
            self._finished[worker] = clock
            self._at[clock] = self._at.get(clock, 0) + 1
