"""The ranks of one node: their buffers in shared memory, and how they wait for each other without holding up a sum."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.comm.memory.futex import wake_all
from volary.comm.memory.shared_memory import LINE_BYTES, await_turn, cuts
from volary.comm.sums.route import Memory
from volary.comm.sums.segments import boards

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.comm.sums.route import BufferShape


class NodeBarrier:
    """Counts in shared memory how often each of `ranks` has arrived; to arrive and to wait are two calls.

    Each rank writes its own counter alone. memory: zeroed, from `offset` at least `NodeBarrier.size_bytes(ranks)`.
    """

    def __init__(self, memory: mmap.mmap, offset: int, ranks: Sequence[int], rank: int, timeout_s: float) -> None:
        counters = [ctypes.c_int32.from_buffer(memory, offset + place * LINE_BYTES) for place in range(len(ranks))]
        self._mine = counters[ranks.index(rank)]
        self._others = [(other, counter) for other, counter in zip(ranks, counters, strict=True) if other != rank]
        self._timeout_s, self._since = timeout_s, cuts()

    @staticmethod
    def size_bytes(ranks: Sequence[int]) -> int:
        """The bytes that the counters take."""
        return len(ranks) * LINE_BYTES

    def arrive(self) -> int:
        """Tell the others that this rank has arrived once more; returns how often it has."""
        turn: int = self._mine.value + 1
        self._mine.value = turn
        wake_all(self._mine)
        return turn

    def open(self, turn: int) -> bool:
        """Whether all ranks of the node have arrived `turn` times."""
        return all(counter.value >= turn for _, counter in self._others)

    def wait(self, turn: int) -> None:
        """Return when everybody has arrived `turn` times. Raises PeerLost, naming who has not."""
        for rank, counter in self._others:
            if counter.value < turn:
                await_turn(counter, turn, rank, self._timeout_s, self._since)


class NodeBuffers:
    """Buffers of the ranks of one node, in one segment. A collective call of these ranks.

    written: each rank passes it when its contribution to a sum is written, done: when its part of the sum is. Raises
    OSError, on all of them, if there is not so much memory.
    """

    def __init__(
        self, bulletin: Bulletin, ranks: Sequence[int], shapes: Sequence[BufferShape], timeout_s: float
    ) -> None:
        rank, counters_bytes = bulletin.rank, NodeBarrier.size_bytes(ranks)
        segment, self.boards = boards(bulletin.among(ranks), shapes, 2 * counters_bytes)
        self.written = NodeBarrier(segment.memory, 0, ranks, rank, timeout_s)
        self.done = NodeBarrier(segment.memory, counters_bytes, ranks, rank, timeout_s)
        self.memory = [Memory(board.contributions[ranks.index(rank)], board.agreed) for board in self.boards]
        self.done.wait(self.done.arrive())
        segment.close_address()
