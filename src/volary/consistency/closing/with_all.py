"""Closes a clock with the contributions of all who take part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from volary.consistency.closing.clocks import Clocks
from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate


class SynchronousCloser:
    """A clock closes once everybody who takes part has finished it; a `volary.server.roster.closing.Closer`.

    early: a contribution counts as finished once it is computed, as nobody is lost without the run ending. Slices are
    then updated as their gradients arrive, under the rest of backward.
    """

    def __init__(self, first: int, *, early: bool) -> None:
        self._clocks, self._early = Clocks(first), early

    def joined(self, worker: int, now: float) -> None:
        """Wait for the worker from its next clock on."""
        self._clocks.joined(worker)

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Stop waiting for the worker; what it finished counts."""
        self._clocks.left(worker)
        return list(self._due())

    def next_clock(self, worker: int, now: float) -> int | None:
        """The worker's next clock; a worker that joins begins with the clock that closes next."""
        return self._clocks.take(worker)

    @property
    def held_by(self) -> int | None:
        """A clock that closes lets all continue."""
        return None

    def oldest(self, clock: int) -> int:
        """The clock itself: each earlier clock is one update."""
        return clock

    def computed(self, contribution: Contribution, samples: int, finite: bool, now: float) -> Sequence[DueUpdate]:
        self._clocks.computed(contribution, finite)
        if self._early:
            self._clocks.finished(contribution, samples)
        return list(self._due())

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        self._clocks.finished(contribution, samples)
        return list(self._due())

    def tick(self, now: float) -> Sequence[DueUpdate]:
        """Close nothing, as time alone does not."""
        return ()

    def _due(self) -> Iterator[DueUpdate]:
        clocks = self._clocks
        while clocks.pending and not clocks.unfinished and not clocks.awaited():
            yield clocks.close()
