"""Matrices that lie one after the other and travel by one codec: their frames, and what it remembers, lie so too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec

ALIGN_BYTES = 16  # of a frame: codecs read frames as words


def aligned(size_bytes: int) -> int:
    """`size_bytes` of a frame, up to where the next one may begin."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """One matrix among others. values, frame, memory: where they lie, in values, bytes and values."""

    rows: int
    columns: int
    values: slice
    frame: slice
    memory: slice


class MatrixBatch:
    """Matrices of these `shapes`, (rows, columns) each, by `codec`.

    size: values of all. frame_bytes: of all frames, each of which is aligned. memory_values: that the codec remembers.
    """

    def __init__(self, codec: FrameCodec, shapes: Sequence[tuple[int, int]]) -> None:
        self.places = list[MatrixPlace]()
        self.size = self.frame_bytes = self.memory_values = 0
        for rows, columns in shapes:
            frame = aligned(self.frame_bytes)
            ends = (
                self.size + rows * columns,
                frame + codec.frame_bytes(rows, columns),
                self.memory_values + codec.memory_values(rows, columns),
            )
            of_each = slice(self.size, ends[0]), slice(frame, ends[1]), slice(self.memory_values, ends[2])
            self.places.append(MatrixPlace(rows, columns, *of_each))
            self.size, self.frame_bytes, self.memory_values = ends

    @cached_property
    def table(self) -> Tensor:
        """(matrices, 6): rows, columns, the places of values, frame and memory, all in values, and the memory's end."""
        import torch

        each = (
            (one.rows, one.columns, one.values.start, one.frame.start // 4, one.memory.start, one.memory.stop)
            for one in self.places
        )
        return torch.tensor(list(each))

    def matrices(self, values: Tensor) -> Iterator[Tensor]:
        """Each one's values, (rows, columns), of all, (size,); views."""
        for one in self.places:
            yield values[one.values].view(one.rows, one.columns)

    def frames(self, frames: Tensor) -> Iterator[Tensor]:
        """Each one's frame, (bytes,), of all, (frame_bytes,); views."""
        for one in self.places:
            yield frames[one.frame]

    def memories(self, memory: Tensor) -> Iterator[Tensor]:
        """Each one's memory, of all, (memory_values,); views."""
        for one in self.places:
            yield memory[one.memory]
