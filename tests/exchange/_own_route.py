"""A route for one rank alone: a sum over one rank is what it contributed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from volary.comm.sums.route import BufferShape, Memory
from volary.errors import PeerLost

AT_MOST_S = 120.0


@dataclass
class _Summed:
    route: OwnRoute
    buffer: int

    def wait(self) -> None:
        assert self.route.go_on.wait(AT_MOST_S)
        self.route.under_way.remove(self.buffer)


class OwnRoute:
    """Notes what was summed, in order. go_on: sums arrive only while it is set. fails_at: the number of a sum.

    under_way: buffers now; beside: those that were under way when each sum began.
    """

    in_flight = 2

    def __init__(self, shapes: Sequence[BufferShape], fails_at: int | None = None) -> None:
        flat = [torch.zeros(shape.numel, dtype=shape.dtype) for shape in shapes]
        self.memory = [Memory(one, one) for one in flat]
        self.sums: list[tuple[int, int, int]] = []
        self.under_way: list[int] = []
        self.beside: list[list[int]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self._fails_at = fails_at

    def sum_up(self, buffer: int, start: int, end: int) -> _Summed:
        if len(self.sums) == self._fails_at:
            raise PeerLost("the exchange broke: rank 1 is gone")
        self.sums.append((buffer, start, end))
        self.beside.append(list(self.under_way))
        self.under_way.append(buffer)
        return _Summed(self, buffer)
