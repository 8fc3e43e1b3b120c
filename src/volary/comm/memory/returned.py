"""Memory whose pages can be returned to the system while it stays where it is."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.sums.route import BufferShape


class ReturnedMemory:
    """`values`, (numel,), zeroed, on the CPU."""

    def __init__(self, shape: BufferShape) -> None:
        size_bytes = max(mmap.PAGESIZE, shape.numel * shape.dtype.itemsize)
        self._pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.values: Tensor = torch.frombuffer(self._pages, dtype=shape.dtype, count=shape.numel)

    def give_back(self, start: int, end: int) -> None:
        """The whole pages of the values from `start` to `end` go to the system; read again, they are zero."""
        item = self.values.element_size()
        first = -(-start * item // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end * item // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)
