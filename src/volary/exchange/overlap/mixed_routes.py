"""Buffers that travel in different ways, behind one route."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.comm.sums.route import Arrival, BufferSums, Memory


class MixedRoutes:
    """See `volary.comm.sums.route.BufferSums`. Each of `parts` has the buffers with the numbers beside it, in order.

    Each of them has as many sums under way as it can.
    """

    def __init__(self, parts: Sequence[tuple[BufferSums, Sequence[int]]]) -> None:
        self._lanes = [_Lane(route) for route, _ in parts]
        self._of = {
            number: (lane, place)
            for lane, (_, numbers) in zip(self._lanes, parts, strict=True)
            for place, number in enumerate(numbers)
        }
        self.in_flight = max(lane.route.in_flight for lane in self._lanes)
        self.memory: Sequence[Memory] = [lane.route.memory[place] for _, (lane, place) in sorted(self._of.items())]

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Sum values of a buffer, as they travel."""
        lane, place = self._of[buffer]
        if len(lane.under_way) == lane.route.in_flight:
            lane.under_way[0].wait()
        arrival = _Underway(lane, lane.route.sum_up(place, start, end))
        lane.under_way.append(arrival)
        return arrival


@dataclass
class _Lane:
    """A route, and what is under way there, in order."""

    route: BufferSums
    under_way: deque[_Underway] = field(default_factory=deque)


@dataclass
class _Underway:
    lane: _Lane
    arrival: Arrival

    def wait(self) -> None:
        """Wait once: the next of its route may have waited for it before."""
        if self in self.lane.under_way:
            self.lane.under_way.remove(self)
            self.arrival.wait()
