"""Makes an update of each contribution alone, which its worker reads before its next one."""

from __future__ import annotations

from collections.abc import Sequence

from volary.consistency.closing.alone import ImmediateCloser
from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate


class InTurnCloser(ImmediateCloser):
    """A worker begins a clock once its contribution before is an update, and reads that one or a newer.

    A `volary.server.roster.closing.Closer`. first: the first clock of every worker, and the updates that there were
    before. Workers do not wait for each other.
    """

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self._updates = first
        self._own: dict[int, int] = {}  # by worker, the update of its newest contribution
        self._under_way: set[int] = set()  # workers whose contribution has begun and is no update
        self._begins = -1  # the worker that a clock was given to last

    def left(self, worker: int, now: float) -> Sequence[DueUpdate]:
        """Forget the worker, for which nobody waits."""
        self._under_way.discard(worker)
        return super().left(worker, now)

    def next_clock(self, worker: int, now: float) -> int | None:
        """The worker's own, unless its contribution before is under way."""
        if worker in self._under_way:
            return None
        self._under_way.add(worker)
        self._begins = worker
        return super().next_clock(worker, now)

    @property
    def held_by(self) -> int | None:
        """Updates: each lets its worker continue."""
        return self._updates

    def oldest(self, clock: int) -> int:
        """The update of the worker's newest contribution."""
        return self._own.get(self._begins, 0)

    def done(self, contribution: Contribution, samples: int, now: float) -> Sequence[DueUpdate]:
        """Make an update of the contribution, unless it has nothing to add."""
        self._updates += 1
        self._own[contribution.worker] = self._updates
        self._under_way.discard(contribution.worker)
        return super().done(contribution, samples, now)
