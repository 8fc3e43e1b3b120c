"""Which rows of a frame each task has: every row once, whatever Spark tried again. No input or output here.

A row's position is its partition of the frame and its offset there. Rows travel to tasks in blocks of neighbours, and a
row's number, by which training asks for it, is its place in the order of positions: the order of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # rows that a task has together, but for a partition's last ones


class RowBlock(NamedTuple):
    """Neighbouring rows of a partition: those from `number * BLOCK` on. start: the first one's place in its task."""

    partition: int
    number: int
    rows: int
    start: int


@dataclass(frozen=True)
class Announcement:
    """The rows that the task with a number (`owner`) has, as of its `attempt`."""

    owner: int
    attempt: int
    blocks: Sequence[RowBlock]


class Located(NamedTuple):
    """Where rows are: the tasks that have them, and their places there; both (n,) int64."""

    owners: NDArray[np.int64]
    places: NDArray[np.int64]


class Ledger:
    """Rows by their number, as tasks have announced them; of a task that was tried again its newest attempt counts.

    rows: as many as the frame had when they were counted. Raises ValueError if there are more or fewer, a row is there
    twice, or rows of a partition are missing before others of it.
    """

    def __init__(self, announced: Iterable[Announcement], rows: int) -> None:
        newest: dict[int, Announcement] = {}
        for one in announced:
            if one.owner not in newest or newest[one.owner].attempt < one.attempt:
                newest[one.owner] = one
        held = sorted((block, one.owner) for one in newest.values() for block in one.blocks)
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


def add_blocks(blocks: list[RowBlock], positions: NDArray[np.int64], start: int) -> None:
    """Add rows with these sorted positions (n,): partition times 2**33 plus offset, as Spark has it.

    They follow those of `blocks`, and may continue the last one. start: the first one's place in its task.
    """
    for block in _blocks_of(positions, start):
        last = blocks[-1] if blocks else None
        if last is not None and last[:2] == block[:2]:
            blocks[-1] = last._replace(rows=last.rows + block.rows)
        else:
            blocks.append(block)


def _blocks_of(positions: NDArray[np.int64], start: int) -> list[RowBlock]:
    keys = positions // BLOCK
    firsts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    ends = np.append(firsts[1:], len(positions))
    per_partition = 2**33 // BLOCK
    return [
        RowBlock(*divmod(int(keys[first]), per_partition), int(end - first), start + int(first))
        for first, end in zip(firsts, ends, strict=True)
    ]


def _refuse_gaps(blocks: Sequence[RowBlock]) -> None:
    before = None
    for block in blocks:
        follows = before is not None and before.partition == block.partition
        expected = before.number + 1 if before is not None and follows else 0
        if block.number < expected:
            raise ValueError(f"rows of partition {block.partition} from {block.number * BLOCK} on are there twice")
        whole = before is None or not follows or before.rows == BLOCK
        if block.number > expected or not whole:
            raise ValueError(
                f"partition {block.partition} has rows from {block.number * BLOCK} on and lacks earlier ones"
            )
        before = block
