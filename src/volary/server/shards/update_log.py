"""The updates that have been announced, and the state of each contribution that they name."""

from __future__ import annotations

from volary.server.protocol.clocks import ClockSet
from volary.server.protocol.updates import Closing, Contribution


class UpdateLog:
    """Updates `last` + 1 and on, for so many slices, each of which applies all of them in order.

    An update is forgotten once all slices have applied it; which contributions it settled is remembered, in few bytes.
    """

    def __init__(self, slices: int, last: int) -> None:
        self.last = last
        self._slices = slices
        self._closings: dict[int, Closing] = {}
        self._missing: dict[int, int] = {}  # slices that have not applied it
        self._numbers: dict[Contribution, int] = {}
        self._settled: dict[int, ClockSet] = {}

    def close(self, closing: Closing) -> bool:
        """Write down the next update. False: it has been already."""
        if closing.number <= self.last:
            return False
        assert closing.number == self.last + 1, f"update {closing.number} is announced after {self.last}"
        self.last = closing.number
        if not self._slices:
            return True
        self._closings[closing.number] = closing
        self._missing[closing.number] = self._slices
        for one in closing.contributions:
            self._numbers[one] = closing.number
            self._settled.setdefault(one.worker, ClockSet()).add(one.clock)
        for one in closing.dropped:
            self._settled.setdefault(one.worker, ClockSet()).add(one.clock)
        return True

    def closing(self, number: int) -> Closing | None:
        """The update of that number, if it is announced and not applied by all."""
        return self._closings.get(number)

    def number(self, contribution: Contribution) -> int | None:
        """The update that it is in, if that is not applied by all."""
        return self._numbers.get(contribution)

    def settled(self, contribution: Contribution) -> bool:
        """Whether an announced update has it, or dropped it."""
        clocks = self._settled.get(contribution.worker)
        return clocks is not None and contribution.clock in clocks

    def applied(self, number: int) -> None:
        """One more slice has applied an update."""
        self._missing[number] -= 1
        if not self._missing[number]:
            del self._missing[number]
            for one in self._closings.pop(number).contributions:
                del self._numbers[one]

    def gone(self, worker: int) -> None:
        """Forget what was settled of a worker that pushes no more."""
        self._settled.pop(worker, None)
