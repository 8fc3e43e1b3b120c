"""A route whose ranks go by timetables: each sum begins when the one before has sent all, and the wire never rests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch

from volary.comm.sums.route import Memory
from volary.comm.sums.sum_in_flight import SumInFlight, scratch
from volary.comm.topology.links import Links
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.hops import Hop, Plan
    from volary.comm.sums.node import NodeBuffers
    from volary.comm.sums.route import Arrival, BufferShape
    from volary.comm.sums.segments import SharedBuffer

IN_FLIGHT = 2
PLANS = 64  # timetables that are kept: ranges come in few lengths


Timetable = Callable[[int, int, int], "Sequence[Hop]"]  # of the values from start to end of a buffer, from 0 on


def by_length(plan: Plan, shapes: Sequence[BufferShape]) -> Timetable:
    """The timetable of ranges that depends on their length alone."""
    kept = lru_cache(PLANS)(plan)
    return lambda buffer, start, end: kept(end - start, shapes[buffer].dtype.itemsize)


class Sums:
    """Sums ranges of buffers in `memory` over the ranks of `group`, along the hops of a timetable.

    node: the ranks with whom this one shares memory; where there is none, what it contributes becomes the sum in place.
    """

    def __init__(
        self, group: Group, memory: Sequence[Memory], hops: Timetable, node: NodeBuffers | None = None
    ) -> None:
        self.memory, self._hops = memory, hops
        self.in_flight = IN_FLIGHT
        self._node = node
        self._links = Links(group)
        self._scratch = [scratch() for _ in range(IN_FLIGHT)]
        self._count = 0
        self._last = SumInFlight(self._links, torch.empty(0), [], 0, self._scratch[0], None)  # that has begun
        self._queue: deque[_Underway] = deque()  # sums that have not, in their order

    @property
    def sent_bytes(self) -> int:
        """Payload that this rank has sent."""
        return self._links.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Payload that this rank has received, or is about to."""
        return self._links.received_bytes

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Begin to sum the values from `start` to `end`, or let them queue behind those that still send."""
        self._count += 1
        values = self.memory[buffer].agreed[start:end]
        hops = self._hops(buffer, start, end)
        gather = partial(_gather, self._node.boards[buffer], start) if self._node else None
        travel = SumInFlight(self._links, values, hops, self._count, self._scratch[self._count % IN_FLIGHT], gather)
        arrival = _Underway(self, travel, self._node.written.arrive() if self._node else 0)
        self._queue.append(arrival)
        self._begin_next()
        return arrival

    def finish(self, arrival: _Underway) -> None:
        """Drive a sum to its end. Raises PeerLost if a peer went away."""
        if self._node:
            self._node.written.wait(arrival.turn)
        self._begin_next()
        arrival.travel.finish(self._begin_next)
        if self._node:
            self._node.done.wait(self._node.done.arrive())

    def _begin_next(self) -> None:
        """Begin the next sum if the one before has sent all, and every rank of the node has come to it."""
        while self._queue and self._last.all_left and (not self._node or self._node.written.open(self._queue[0].turn)):
            self._last = self._queue.popleft().travel
            self._last.begin()


@dataclass
class _Underway:
    """A sum, and the turn at which every rank of the node has come to it."""

    sums: Sums
    travel: SumInFlight
    turn: int

    def wait(self) -> None:
        self.sums.finish(self)


def needs_cpu(name: str, shapes: Sequence[BufferShape]) -> None:
    """Raise SettingError unless all values are in this machine's own memory."""
    for shape in shapes:
        if shape.device.type != "cpu":
            raise SettingError(
                f"route {name!r} adds on the processor, the values are on {shape.device}; nearest: torch"
            )


def _gather(board: SharedBuffer, offset: int, start: int, end: int) -> None:
    board.add_between(offset + start, offset + end)
