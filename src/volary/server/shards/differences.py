"""Differences of a worker's slices since they were last sent to it, encoded: pulls in fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.server.shards.buffer_pool import BufferPool, PooledBuffer


class Differences:
    """Differences to one worker, over one connection: it starts from full values, and decodes all that comes, in order.

    The worker's values are remembered exactly as it decodes them, so what one frame lost is in the next difference.
    """

    def __init__(self, codec: FrameCodec, pool: BufferPool) -> None:
        self._codec, self._pool = codec, pool
        self._has: dict[int, tuple[Tensor, Tensor]] = {}  # values (1, size), and the codec's memory

    def frame(self, number: int, values: Tensor, *, anew: bool) -> PooledBuffer | None:
        """The frame of the difference to `values` (size,); None if they are to be sent in full: `anew`, or at first."""
        if values.dtype != torch.float32:
            return None
        if anew or number not in self._has:
            memory = torch.zeros(self._codec.memory_values(1, values.numel()))
            self._has[number] = values.clone().view(1, -1), memory
            return None
        has, memory = self._has[number]
        room = self._pool.take(self._codec.frame_bytes(1, values.numel()))
        if self._codec.encode(values.view(1, -1) - has, room.tensor, memory):
            self._codec.add(room.tensor, has)
            return room
        self._pool.give(room)
        has.copy_(values.view(1, -1))
        return None
