"""Buffers in memory that ranks of one machine share, where they add in place; nobody copies a buffer in or out.

Each rank fills a buffer of its own in a segment that all of them share. When all have come, each adds one slice of all
of them into the result; when all have come again, everybody reads the whole sum where it lies. The next step cannot
touch a result that somebody still reads: it is written only after every rank has come with its next contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.memory import futex
from volary.comm.memory.shared_memory import Rounds, Segment, machine
from volary.sharding.groups import LEADER, leads

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Bulletin
    from volary.comm.sums.route import BufferShape

ALIGN_BYTES = 4096
BLOCK = 1 << 15  # values that are added at a time where more than two are added: they stay in the cache meanwhile


@dataclass(frozen=True)
class SharedBuffer:
    """One buffer in shared memory. contributions: by rank, each (numel,); agreed: their sum, (numel,)."""

    contributions: list[Tensor]
    agreed: Tensor

    def add(self, rank: int, world_size: int) -> None:
        """Add slice `rank` of all contributions, in the order of the ranks, into the result."""
        numel = self.agreed.numel()
        self.add_between(numel * rank // world_size, numel * (rank + 1) // world_size)

    def add_between(self, start: int, end: int) -> None:
        """Add the values from `start` to `end` of all contributions, two or more, in order, into the result."""
        step = BLOCK if len(self.contributions) > 2 else max(1, end - start)
        for at in range(start, end, step):
            block = slice(at, min(end, at + step))
            first, second, *others = (one[block] for one in self.contributions)
            agreed = self.agreed[block]
            torch.add(first, second, out=agreed)
            for other in others:
                agreed.add_(other)


def why_not(bulletin: Bulletin, shapes: Sequence[BufferShape]) -> str:
    """Empty where all ranks can share memory, else why they cannot; the same on all ranks. A collective call."""
    own = futex.why_not()
    if any(shape.device.type != "cpu" for shape in shapes):
        own = "the parameters are on an accelerator"
    everybody = bulletin.share("machine", {"why_not": own, "machine": machine()})
    for offer in everybody:
        if offer["why_not"]:
            return str(offer["why_not"])
    return "" if len({offer["machine"] for offer in everybody}) == 1 else "the workers are not all on one machine"


class SharedSum:
    """Buffers in memory that all ranks share, and the meetings at which they are summed.

    A collective: rank 0 makes the memory, the others open it. timeout_s: of a meeting. Raises OSError, on all ranks, if
    there is not so much memory.
    """

    def __init__(self, bulletin: Bulletin, shapes: Sequence[BufferShape], timeout_s: float) -> None:
        self._rank, self._world_size = bulletin.rank, bulletin.size
        segment, self.boards = boards(bulletin, shapes, Rounds.size_bytes(self._world_size))
        self._rounds = Rounds(segment.memory, self._rank, self._world_size, timeout_s)
        self._rounds.meet()
        segment.close_address()

    def mine(self, index: int) -> Tensor:
        """The memory of this rank's contribution to bucket `index`: (numel,)."""
        return self.boards[index].contributions[self._rank]

    def sum_up(self) -> None:
        """Sum all buckets: every rank has written its contributions, and on return finds the sums. Raises PeerLost."""
        self._rounds.meet()
        for board in self.boards:
            board.add(self._rank, self._world_size)
        self._rounds.meet()


def boards(
    bulletin: Bulletin, shapes: Sequence[BufferShape], counters_bytes: int
) -> tuple[Segment, list[SharedBuffer]]:
    """A segment that all ranks of `bulletin` hold, and a board in it for each of `shapes`; see `copies_in_memory`."""
    segment, found = copies_in_memory(bulletin, [(shape, bulletin.size + 1) for shape in shapes], counters_bytes)
    return segment, [SharedBuffer(contributions, agreed) for *contributions, agreed in found]


def copies_in_memory(
    bulletin: Bulletin, wanted: Sequence[tuple[BufferShape, int]], counters_bytes: int
) -> tuple[Segment, list[list[Tensor]]]:
    """A segment that all ranks of `bulletin` hold, and in it so many buffers, (numel,), of each shape.

    A collective call. Its first `counters_bytes` are free. Its address may be closed when all have come back from here.
    Raises OSError, on all ranks, if there is not so much memory.
    """
    places, size_bytes = _layout(_aligned(counters_bytes), wanted)
    segment = _met(bulletin, size_bytes)
    buffers = [
        [torch.frombuffer(segment.memory, dtype=shape.dtype, count=shape.numel, offset=offset) for offset in offsets]
        for (shape, _), offsets in zip(wanted, places, strict=True)
    ]
    return segment, buffers


def _met(bulletin: Bulletin, size_bytes: int) -> Segment:
    if not leads(bulletin.rank):
        found = bulletin.read("shared-memory", LEADER)
        if "refused" in found:
            raise OSError(found["refused"])
        return Segment.attach(found["address"], size_bytes)
    try:
        segment = Segment.create(size_bytes)
    except OSError as error:
        bulletin.post("shared-memory", {"refused": str(error)})
        raise
    bulletin.post("shared-memory", {"address": segment.address})
    return segment


def _aligned(count: int) -> int:
    return -(-count // ALIGN_BYTES) * ALIGN_BYTES


def _layout(start: int, wanted: Sequence[tuple[BufferShape, int]]) -> tuple[list[list[int]], int]:
    """Offsets in bytes of each buffer's copies, and the size of all."""
    places, at = [], start
    for shape, copies in wanted:
        one = _aligned(shape.numel * shape.dtype.itemsize)
        places.append([at + copy * one for copy in range(copies)])
        at += copies * one
    return places, at
