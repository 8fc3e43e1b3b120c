"""Memory that is used again: it holds what workers push until that is applied, and values while they are sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Message, Payload


ARENA_BYTES = 64 * 2**20  # taken at once where it is shared between processes
ALIGN_BYTES = 64

Take = Callable[[int], "Payload"]


class PooledBuffer:
    """A buffer: `tensor` (bytes,) of uint8, and `payload`, the same bytes for a transport."""

    __slots__ = ("payload", "tensor")

    def __init__(self, payload: Payload) -> None:
        self.payload, self.tensor = payload, torch.frombuffer(payload, dtype=torch.uint8)


class BufferPool:
    """Rooms, by their size, in memory of `take`; None: of this process's own. From any thread."""

    def __init__(self, take: Take | None = None) -> None:
        self._take = take
        self._arena: Payload = memoryview(b"")
        self._free: dict[int, list[PooledBuffer]] = {}
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> PooledBuffer:
        """A buffer of `size_bytes` whose content nobody needs; it is made if none is free."""
        with self._lock:
            free = self._free.get(size_bytes)
            return free.pop() if free else PooledBuffer(self._new(size_bytes))

    def give(self, room: PooledBuffer) -> None:
        """Give a buffer back, to be used again."""
        with self._lock:
            self._free.setdefault(len(room.payload), []).append(room)

    def _new(self, size_bytes: int) -> Payload:
        if self._take is None:
            return torch.empty(size_bytes, dtype=torch.uint8).numpy().data
        aligned = -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if len(self._arena) < aligned:
            self._arena = self._take(max(aligned, ARENA_BYTES))
        payload, self._arena = self._arena[:size_bytes], self._arena[aligned:]
        return payload


class Offer:
    """The payload behind a header: in a buffer of the pool, or lent by the sender until it is released.

    kept: somebody will drop it.
    """

    __slots__ = ("_lock", "_message", "_pool", "_room", "_tensor", "_used", "kept")

    def __init__(self, pool: BufferPool, room: PooledBuffer | None, message: Message) -> None:
        self._pool, self._room = pool, room
        self._message: Message | None = message if message.lent else None
        self._lock, self._used, self.kept = threading.Lock(), False, False
        if room is not None:
            self._tensor = room.tensor
        else:
            assert message.payload is not None
            self._tensor = torch.frombuffer(message.payload, dtype=torch.uint8)

    @property
    def lent(self) -> bool:
        """Whether the sender still waits for its memory."""
        return self._message is not None

    def take(self) -> Tensor:
        """Take the payload, (bytes,) of uint8, which stays where it is until `drop`."""
        with self._lock:
            self._used = True
            return self._tensor

    def settle(self) -> None:
        """Keep a copy of what is lent, unless it is being used, and let the sender have its memory back."""
        with self._lock:
            if self._message is None or self._used:
                return
            self._room = self._pool.take(self._tensor.numel())
            self._tensor = self._room.tensor.copy_(self._tensor)
            self._message.release()
            self._message = None

    def drop(self) -> None:
        """Drop the buffer that was offered: nobody needs it any more."""
        with self._lock:
            if self._message is not None:
                self._message.release()
            if self._room is not None:
                self._pool.give(self._room)
            self._message, self._room = None, None
