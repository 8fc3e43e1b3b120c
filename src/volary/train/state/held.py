"""Copies of what a checkpoint is to hold, in memory: training changes the values, and the copies are written."""

from __future__ import annotations

import copy
import mmap
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from volary.run.machine.memory import FITS, available_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.run.content import Content

_BLOCK_BYTES = 16 << 20  # taken from the system at once, unless a tensor needs more
_ALIGNED = 64


class TensorContent(Protocol):
    """The content of a file of tensors, whose values are read when it is called to write the file."""

    def __call__(self, file: Any) -> object: ...

    def held(self, memory: HeldMemory) -> Content:
        """The same content of the values as they are now. Raises MemoryError."""
        ...


Savable = bytes | TensorContent


def held(content: Savable, memory: HeldMemory) -> Content:
    """The content as it is now, however its tensors change. Raises MemoryError, see `HeldMemory`."""
    return content if isinstance(content, bytes) else content.held(memory)


class HeldMemory:
    """Memory for the copies of one save at a time. It is kept for the next: pages that are new cost more than a copy.

    size_bytes: of all that was taken from the system. available: how much more can be taken; None: nobody knows.
    """

    def __init__(self, available: Callable[[], int | None] = available_bytes) -> None:
        self.size_bytes = 0
        self._available = available
        self._blocks: list[mmap.mmap] = []
        self._at = (0, 0)  # the block that is next, and where in it

    def begin(self) -> None:
        """A save begins: nobody needs the copies of the one before."""
        self._at = (0, 0)

    def copy(self, state: Any) -> Any:
        """A copy of plain values, tensors and containers of these; tensors are on the CPU, in this object's memory.

        Tensors that are the same values still are. Raises MemoryError if it would take more than most of what is
        available.
        """
        found: list[Tensor] = []
        _find(state, found)
        by_place: dict[Any, Tensor] = {}
        copies: dict[int, Any] = {}
        for tensor in found:
            place = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
            if place not in by_place:
                by_place[place] = self._copy(tensor.detach())
            copies[id(tensor)] = by_place[place]
        return copy.deepcopy(state, copies)

    def _copy(self, values: Tensor) -> Tensor:
        block, start = self._room(values.nbytes)
        like = torch.empty_like(values, device="meta")
        flat = torch.frombuffer(block, dtype=torch.uint8, count=values.nbytes, offset=start).view(values.dtype)
        return flat.as_strided(like.shape, like.stride()).copy_(values)

    def _room(self, size: int) -> tuple[mmap.mmap, int]:
        number, start = self._at
        while number < len(self._blocks) and start + size > len(self._blocks[number]):
            number, start = number + 1, 0
        if number == len(self._blocks):
            self._take(max(size, _BLOCK_BYTES))
        self._at = number, -(-(start + size) // _ALIGNED) * _ALIGNED
        return self._blocks[number], start

    def _take(self, size: int) -> None:
        available = self._available()
        if available is not None and size > FITS * available:
            raise MemoryError(f"{size:,} bytes are needed, and {available:,} are available")
        try:
            block = mmap.mmap(-1, size)
        except OSError as error:
            raise MemoryError(str(error)) from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        self._blocks.append(block)
        self.size_bytes += size


def _find(state: Any, found: list[Tensor]) -> None:
    """All dense tensors of a state, but for empty ones."""
    if isinstance(state, dict):
        for one in state.values():
            _find(one, found)
    elif isinstance(state, list | tuple):
        for one in state:
            _find(one, found)
    elif type(state) is Tensor and state.layout == torch.strided and state.numel() and not state.is_quantized:
        found.append(state)
