"""Copies of what a checkpoint is to hold, in memory: training changes the values, and the copies are written."""

from __future__ import annotations

import contextlib
import copy
import mmap
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from volary.run.machine.memory import FITS, available_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from volary.run.content import Content

_BLOCK_BYTES = 16 << 20  # of a block for several tensors; a larger tensor has one of its own
_TOUCHED_BYTES = 4 << 20  # between two looks at whether it is enough
_ALIGNED = 64


class TensorContent(Protocol):
    """The content of a file of tensors, whose values are read when it is called to write the file."""

    def __call__(self, file: Any) -> object: ...

    @property
    def state(self) -> Any:
        """The values to write: plain values, tensors and containers of these."""
        ...

    def of(self, state: Any) -> Content:
        """The same file of another state."""
        ...


Savable = bytes | TensorContent


def held(content: Savable, memory: HeldMemory) -> Content:
    """The content as it is now, however its tensors change. Raises MemoryError, see `HeldMemory`."""
    return content if isinstance(content, bytes) else content.of(memory.copy(content.state))


def reserve(content: Savable, memory: HeldMemory) -> None:
    """Have the memory that `held` will need for this content. Raises MemoryError, see `HeldMemory`."""
    if not isinstance(content, bytes):
        memory.reserve(content.state)


def without_values(state: Any) -> Any:
    """A copy of plain values, tensors and containers of these in which tensors are empty."""
    return copy.deepcopy(state, {id(tensor): tensor.new_empty(0) for tensor in _tensors(state)})


class HeldMemory:
    """Memory for the copies of one save at a time. It is kept for the next: pages that are new cost more than a copy.

    size_bytes: of all that was taken from the system. available: how much more can be taken; None: nobody knows.
    """

    def __init__(self, available: Callable[[], int | None] = available_bytes) -> None:
        self.size_bytes = 0
        self._available = available
        self._blocks: list[mmap.mmap] = []
        self._used: list[int] = []  # of each block, from its start

    def begin(self) -> None:
        """A save begins: nobody needs the copies of the one before."""
        self._used = [0] * len(self._blocks)

    def reserve(self, state: Any) -> None:
        """Take what a copy of the state will need, as `copy` does, and copy nothing."""
        for tensor in _by_place(state).values():
            self._room(tensor.nbytes)

    def touch(self, enough: Callable[[], bool]) -> None:
        """Have the system give all pages of what was taken, until that is enough."""
        for block in self._blocks:
            pages = torch.frombuffer(block, dtype=torch.uint8)
            for start in range(0, len(block), _TOUCHED_BYTES):
                if enough():
                    return
                pages[start : start + _TOUCHED_BYTES : mmap.PAGESIZE] = 0

    def copy(self, state: Any) -> Any:
        """A copy of plain values, tensors and containers of these; tensors are on the CPU, in this object's memory.

        Tensors that are the same values still are. Raises MemoryError if it would take more than most of what is
        available.
        """
        found = _by_place(state)
        by_place = {place: self._copy(tensor.detach()) for place, tensor in found.items()}
        copies: dict[int, Any] = {id(tensor): by_place[_place(tensor)] for tensor in _tensors(state)}
        return copy.deepcopy(state, copies)

    def _copy(self, values: Tensor) -> Tensor:
        block, start = self._room(values.nbytes)
        like = torch.empty_like(values, device="meta")
        flat = torch.frombuffer(block, dtype=torch.uint8, count=values.nbytes, offset=start).view(values.dtype)
        return flat.as_strided(like.shape, like.stride()).copy_(values)

    def _room(self, size: int) -> tuple[mmap.mmap, int]:
        large = size > _BLOCK_BYTES
        fitting = [
            number
            for number, block in enumerate(self._blocks)
            if self._used[number] + size <= len(block) and (large or len(block) == _BLOCK_BYTES)
        ]
        # the smallest: whatever the order of tensors, the same ones find room in the same blocks
        number = min(fitting, key=lambda one: len(self._blocks[one]), default=len(self._blocks))
        if number == len(self._blocks):
            self._take(max(size, _BLOCK_BYTES))
        start = self._used[number]
        self._used[number] = -(-(start + size) // _ALIGNED) * _ALIGNED
        return self._blocks[number], start

    def _take(self, size: int) -> None:
        available = self._available()
        if available is not None and size > FITS * available:
            raise MemoryError(f"{size:,} bytes are needed, and {available:,} are available")
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages
        except OSError as error:
            raise MemoryError(str(error)) from error
        for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # processes that decode are forked: no copies for them
            with contextlib.suppress(AttributeError, OSError):  # a system without it
                block.madvise(getattr(mmap, advice))
        self._blocks.append(block)
        self._used.append(0)
        self.size_bytes += size


def _by_place(state: Any) -> dict[Any, Tensor]:
    """The tensors of a state, those that are the same values once."""
    found: dict[Any, Tensor] = {}
    for tensor in _tensors(state):
        found.setdefault(_place(tensor), tensor)
    return found


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride()


def _tensors(state: Any) -> Iterator[Tensor]:
    """All dense tensors of a state, but for empty ones."""
    if isinstance(state, dict | list | tuple):
        for one in state.values() if isinstance(state, dict) else state:
            yield from _tensors(one)
    elif type(state) is Tensor and state.layout == torch.strided and state.numel() and not state.is_quantized:
        yield state
