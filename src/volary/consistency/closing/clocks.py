"""Contributions that have begun and are in no update yet, for models whose updates close clock after clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import DueUpdate


@dataclass
class Begun:
    """A contribution that has begun. useful: it has something to add, as far as that is known."""

    finished: bool = False
    useful: bool = True


class Clocks:
    """The workers that take part, and what has begun. clock: the one that closes next; all before it are closed."""

    def __init__(self, first: int) -> None:
        self.clock = first
        self.here: set[int] = set()
        self._first = first
        self._next: dict[int, int] = {}
        self._begun: dict[Contribution, Begun] = {}
        self._unfinished = Counter[int]()  # by clock, how many have begun and are not finished

    @property
    def unfinished(self) -> int:
        """How many have begun the clock that closes next and have not finished it."""
        return self._unfinished[self.clock]

    @property
    def pending(self) -> bool:
        """Whether some contribution has begun that is in no update yet."""
        return bool(self._begun)

    def joined(self, worker: int) -> None:
        self.here.add(worker)

    def left(self, worker: int) -> None:
        """A worker has gone; what it had not finished is forgotten."""
        self.here.discard(worker)
        for contribution in [each for each in self._begun if each.worker == worker]:
            if not self._begun[contribution].finished:
                del self._begun[contribution]
                self._unfinished[contribution.clock] -= 1

    def take(self, worker: int) -> int:
        """The clock of the worker's next contribution: its own, or the one that closes next, if that is later."""
        clock = max(self._next.get(worker, self._first), self.clock)
        self._next[worker] = clock + 1
        self._begun[Contribution(worker, clock)] = Begun()
        self._unfinished[clock] += 1
        return clock

    def computed(self, contribution: Contribution, finite: bool) -> None:
        self._begun[contribution].useful = finite

    def finished(self, contribution: Contribution, samples: int) -> None:
        """Note that a contribution is complete: an update may hold it."""
        known = self._begun[contribution]
        self._unfinished[contribution.clock] -= not known.finished
        known.finished, known.useful = True, known.useful and samples > 0

    def begun(self) -> list[Begun]:
        """The contributions that have begun, of the clock that closes next."""
        return [known for each, known in self._begun.items() if each.clock == self.clock]

    def awaited(self) -> list[int]:
        """The workers that take part and have yet to begin their contributions to the clock that closes next."""
        return [worker for worker in self.here if self._next.get(worker, self._first) <= self.clock]

    def close(self) -> DueUpdate:
        """Close the clock with all that is finished of it."""
        found = {each: self._begun.pop(each) for each in sorted(self._begun) if each.clock == self.clock}
        del self._unfinished[self.clock]
        self.clock += 1
        return DueUpdate(
            tuple(each for each, known in found.items() if known.finished and known.useful),
            dropped=tuple(each for each, known in found.items() if not known.finished),
            left_out=tuple(each for each, known in found.items() if known.finished and not known.useful),
        )
