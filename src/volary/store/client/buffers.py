"""A worker's keys: where their slices lie, the memory of what is being pushed, and where values are awaited."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from volary.comm.control.errors import BadFrame
from volary.server.shards.memory import BufferPool, PooledBuffer
from volary.store.tensors import as_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.transports._base import Payload
    from volary.server.client.client import Held, HeldAll, Installed, RequestRefused
    from volary.server.protocol.header import Header
    from volary.server.shards.memory import Take
    from volary.store.messages import Known
    from volary.store.protocol import Key


@dataclass
class Entry:
    """A key. pushed: how often by this worker; seen: how many of these are known to be applied.

    rooms: what is pushed lies there, by its clock, as long as somebody may read it.
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

    def spans(self) -> Iterator[tuple[int, slice]]:
        """Each slice's number, and its part of the tensor's bytes."""
        width = self.place.kind.value_bytes
        for one in self.place.cuts:
            yield one.number, slice(one.start * width, one.end * width)


class StoreBuffers:
    """See `volary.server.client.link.BufferProvider`. memory: of the transport, for what is pushed."""

    def __init__(self, memory: Take) -> None:
        self.entries: dict[Key, Entry] = {}
        self._pool = BufferPool(memory)
        self._spans: dict[int, slice] = {}
        self._rooms: dict[int, PooledBuffer] = {}  # by clock
        self._awaited: dict[int, Payload] = {}

    def enter(self, place: Known) -> Entry:
        """Add a key, with memory for its slices."""
        self._spans.update((entry := Entry(place.key, place)).spans())
        self.entries[place.key] = entry
        return entry

    def pack(self, entry: Entry, tensor: Tensor, clock: int) -> None:
        """Copy a tensor of the key's shape to memory that leaves at this clock."""
        room = self._pool.take(entry.size_bytes)
        room.tensor.view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
        entry.rooms[clock] = self._rooms[clock] = room

    def free(self, entry: Entry, clock: int) -> None:
        """Nobody reads what left at this clock any more."""
        self._pool.give(entry.rooms.pop(clock))
        del self._rooms[clock]

    def await_in(self, entry: Entry, target: Tensor) -> None:
        """Let the key's values be received in `target`, of its shape, from now on."""
        memory = as_bytes(target)
        self._awaited.update((number, memory[span]) for number, span in entry.spans())

    def await_no_more(self, entry: Entry) -> None:
        """They are there, or nobody waits for them any more."""
        for number, _ in entry.spans():
            del self._awaited[number]

    def leave(self, header: Header) -> tuple[Header, Payload]:
        return header, self._rooms[header.clock].payload[self._spans[header.slice]]

    def place(self, header: Header) -> Payload | None:
        """See `BufferProvider`; nothing of another length ever lies in a tensor of the user's.

        Raises BadFrame for values that do not fit.
        """
        awaited = self._awaited.get(header.slice)
        if awaited is not None and len(awaited) != header.length:
            raise BadFrame(f"{header.length} bytes came for slice {header.slice} of {len(awaited)}")
        return awaited

    def landed(self, header: Header, payload: Payload) -> None:
        awaited = self.place(header)
        if awaited is not None and awaited is not payload:
            torch.frombuffer(awaited, dtype=torch.uint8).copy_(torch.frombuffer(payload, dtype=torch.uint8))

    def carried(self, header: Header, sent: int, received: int) -> None:
        """Nobody asks what a store's values take."""

    def happened(self, event: Held | HeldAll | Installed | RequestRefused) -> None:
        pass
