"""A worker's keys: where their slices are, and the memory of what is being pushed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volary.server.client.values import PlainMemory

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.server.shards.buffer_pool import BufferPool, PooledBuffer
    from volary.store.messages import Known
    from volary.store.protocol import Key


@dataclass
class Entry:
    """A key. pushed: how often by this worker; seen: how many of these are known to be applied.

    rooms: it holds what is pushed, by its clock, as long as somebody may read it.
    """

    key: Key
    place: Known
    lock: threading.Lock = field(default_factory=threading.Lock)
    pushed: int = 0
    seen: int = 0
    rooms: dict[int, PooledBuffer] = field(default_factory=dict)

    @property
    def name(self) -> int:
        """The number of its first slice: how the register and all workers know the key."""
        return self.place.cuts[0].number

    @property
    def size_bytes(self) -> int:
        """The size of the tensor in bytes."""
        return self.place.kind.size * self.place.kind.value_bytes

    @property
    def numbers(self) -> list[int]:
        """The numbers of its slices."""
        return [one.number for one in self.place.cuts]

    def slices(self, memory: Payload) -> Iterator[tuple[int, PlainMemory]]:
        """Each slice's number, and its part of the `memory` of such a tensor."""
        width = self.place.kind.value_bytes
        for one in self.place.cuts:
            yield one.number, PlainMemory(memory[one.start * width : one.end * width])

    def pack(self, tensor: Tensor, clock: int, pool: BufferPool) -> Payload:
        """Copy a tensor of the key's shape to memory that leaves at this clock."""
        self.rooms[clock] = room = pool.take(self.size_bytes)
        room.tensor.view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
        return room.payload
