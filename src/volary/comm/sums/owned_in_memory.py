"""Sums by their owners in memory that ranks of one machine share, in which parameters lie once: nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from volary.comm.memory.shared_memory import LINE_BYTES
from volary.comm.sums.node import NodeBarrier
from volary.comm.sums.route import Memory
from volary.comm.sums.segments import copies_in_memory

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Bulletin
    from volary.comm.sums.owned import Divide
    from volary.comm.sums.route import BufferShape

BLOCK = 1 << 15  # values that are added at a time: they stay in the cache meanwhile
IN_FLIGHT = 4


class OwnedInMemory:
    """A route; see `volary.comm.sums.route.BufferSums`. A collective call.

    shapes: of the buffers that are summed. once: of those after them, which all ranks have in the same memory, and of
    which each writes its own values: to sum those up is to wait until all have. Each owner adds its values of all ranks
    up in its own contribution, in the order of the ranks. timeout_s: bound of each wait. Raises OSError, on all ranks,
    if there is not so much memory.
    """

    in_flight = IN_FLIGHT

    def __init__(
        self,
        bulletin: Bulletin,
        shapes: Sequence[BufferShape],
        once: Sequence[BufferShape],
        divide: Divide,
        timeout_s: float,
    ) -> None:
        self._rank, self._divide = bulletin.rank, divide
        ranks = range(bulletin.size)
        wanted = [*((shape, bulletin.size) for shape in shapes), *((shape, 1) for shape in once)]
        segment, buffers = copies_in_memory(bulletin, wanted, 2 * NodeBarrier.size_bytes(ranks))
        self._written = NodeBarrier(segment.memory, 0, ranks, self._rank, timeout_s)
        self._out = NodeBarrier(segment.memory, len(ranks) * LINE_BYTES, ranks, self._rank, timeout_s)
        self._contributions, self.once = buffers[: len(shapes)], [one for (one,) in buffers[len(shapes) :]]
        self._heads = [
            torch.zeros(divide(buffer, 0, shape.numel).everybody, dtype=shape.dtype)
            for buffer, shape in enumerate(shapes)
        ]
        own = [every[self._rank] for every in self._contributions]
        self.memory = [
            Memory(one, head) if len(head) == len(one) else Memory(one, one, head=head)
            for one, head in zip(own, self._heads, strict=True)
        ]
        self.memory += [Memory(one, one) for one in self.once]
        self._written.wait(self._written.arrive())
        segment.close_address()

    def sum_up(self, buffer: int, start: int, end: int) -> _Coming:
        """This rank has written its values, as the others will."""
        turn = self._written.arrive()

        def add() -> None:
            self._written.wait(turn)
            if buffer < len(self._contributions):
                self._add(buffer, start, end)

        return _Coming(add)

    def leave(self) -> int:
        """This rank reads what is there once no more; returns the number of the time."""
        return self._out.arrive()

    def all_have_left(self, time: int) -> None:
        """Wait until so all ranks have. Raises PeerLost."""
        self._out.wait(time)

    def _add(self, buffer: int, start: int, end: int) -> None:
        division, every = self._divide(buffer, start, end), self._contributions[buffer]
        if division.everybody:
            first = slice(start, start + division.everybody)
            torch.sum(torch.stack([one[first] for one in every]), 0, out=self._heads[buffer])
        for low, high in division.owned[self._rank]:
            for at in range(start + low, start + high, BLOCK):
                _add_into(every, self._rank, slice(at, min(start + high, at + BLOCK)))


def _add_into(every: Sequence[Tensor], rank: int, block: slice) -> None:
    """Add up a block of all contributions, in the order of the ranks, in that of `rank`."""
    first, own = every[0], every[rank]
    total = first[block] if own is first else first[block].clone()
    for other in every[1:]:
        total += other[block]
    if own is not first:
        own[block] = total


class _Coming:
    """A piece of work to do once all have come."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def wait(self) -> None:
        self._then()
