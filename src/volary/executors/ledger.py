"""Which rows of a frame are held where: every row once, whatever Spark tried again. No input or output here.

A row's position is its partition of the frame and its offset there. A partition is held by one process, and a row's
number, by which training asks for it, is its place in the order of positions: the order of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RowBlock(NamedTuple):
    """Neighbouring rows of a partition: those from the offset `first` on. start: the first one's place where it is."""

    partition: int
    first: int
    rows: int
    start: int


@dataclass(frozen=True)
class Announcement:
    """The rows that the process with a number (`owner`) holds."""

    owner: int
    blocks: Sequence[RowBlock]


class Located(NamedTuple):
    """Where rows are: the processes that hold them, and their places there; both (n,) int64."""

    owners: NDArray[np.int64]
    places: NDArray[np.int64]


class Ledger:
    """Rows by their number, as the tasks whose results Spark has taken announced them.

    rows: as many as the frame had when they were counted. Raises ValueError if there are more or fewer, a row is there
    twice, or rows of a partition are missing before others of it.
    """

    def __init__(self, announced: Iterable[Announcement], rows: int) -> None:
        held = sorted((block, one.owner) for one in announced for block in one.blocks)
        _refuse_gaps([block for block, _ in held])
        sizes = [block.rows for block, _ in held]
        self._ends = np.cumsum(sizes, dtype=np.int64)
        self._firsts = self._ends - np.asarray(sizes, dtype=np.int64)
        self._owners = np.array([owner for _, owner in held], dtype=np.int64)
        self._starts = np.array([block.start for block, _ in held], dtype=np.int64)
        if len(self) != rows:  # a partition's last rows leave no gap
            raise ValueError(f"{len(self)} rows came, and there were {rows} when they were counted")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(self, numbers: NDArray[np.int64]) -> Located:
        """Find rows by their numbers (n,), each from 0 to below the length."""
        block = np.searchsorted(self._ends, numbers, side="right")
        return Located(self._owners[block], self._starts[block] + numbers - self._firsts[block])


def add_rows(blocks: list[RowBlock], positions: NDArray[np.int64], start: int) -> None:
    """Add rows with these positions (n,), partition times 2**33 plus offset, as Spark has it: a partition's in order.

    They follow those of `blocks`, and may continue the last one. start: the first one's place where it is.
    """
    ends = [*np.flatnonzero(np.diff(positions) != 1) + 1, len(positions)]
    for begin, end in zip([0, *ends], ends, strict=False):
        partition, first = divmod(int(positions[begin]), 2**33)
        last = blocks[-1] if blocks else None
        if last is not None and last.partition == partition and last.first + last.rows == first:
            blocks[-1] = last._replace(rows=last.rows + int(end - begin))
        else:
            blocks.append(RowBlock(partition, first, int(end - begin), start + int(begin)))


def _refuse_gaps(blocks: Sequence[RowBlock]) -> None:
    partition, expected = -1, 0
    for block in blocks:
        if block.partition != partition:
            partition, expected = block.partition, 0
        if block.first < expected:
            raise ValueError(f"rows of partition {block.partition} from {block.first} on are there twice")
        if block.first > expected:
            raise ValueError(f"partition {block.partition} has rows from {block.first} on and lacks earlier ones")
        expected = block.first + block.rows
