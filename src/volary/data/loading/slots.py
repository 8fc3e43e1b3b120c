"""Memory of batches that other processes fill: slots of one mapping without a name, which goes with its processes."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import DTypeLike

from volary.data.decoding.decoder import Array

# a decoder that finds its output aligned to 32 bytes writes past the caches, which costs a tiny image 15 % of its time
_UNALIGNED_BYTES = 16
WAITING, DONE, KEPT, FAILED = range(4)  # what became of a row; kept: for later epochs, too


class Slots:
    """Up to `count` batches of up to `rows` samples, and what is to be put there. `used` of them are used at first.

    samples (count, rows, *shape): memory that is never used is never taken. indices (count, rows): of the samples.
    states (count, rows) as above. wanted (count,): whether anybody still wants the batch. free, unused: numbers of
    slots that hold nothing.
    """

    def __init__(self, count: int, rows: int, shape: tuple[int, ...], dtype: DTypeLike, used: int) -> None:
        self.count, self.rows, self.free = count, rows, list(range(used))
        self.unused = list(range(used, count))
        self.samples = shared_array((count, rows, *shape), dtype)
        self.indices = shared_array((count, rows), np.int64)
        self.states = shared_array((count, rows), np.uint8)
        self.wanted = shared_array((count,), np.uint8)

    def use_all(self) -> None:
        """Use all of them from now on."""
        self.free += self.unused
        self.unused.clear()

    def take(self, indices: list[int]) -> int:
        """The number of a slot for these samples. There is a free one."""
        slot = self.free.pop()  # the one that was used last: its memory is in the processors' caches
        self.indices[slot, : len(indices)] = indices
        self.states[slot] = WAITING
        self.wanted[slot] = True
        return slot


def shared_array(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Zeros, which processes that are forked from now on share."""
    values = np.dtype(dtype)
    size = int(np.prod(shape)) * values.itemsize
    memory = mmap.mmap(-1, size + _UNALIGNED_BYTES)
    return np.frombuffer(memory, values, int(np.prod(shape)), _UNALIGNED_BYTES).reshape(shape)
