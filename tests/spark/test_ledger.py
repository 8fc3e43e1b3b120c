"""Every row of a frame exactly once, whatever its partitions are, who has them, and what Spark tried again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.executors.ledger import BLOCK, Announcement, Ledger, RowBlock, add_blocks

partitions = st.dictionaries(st.integers(0, 40), st.integers(1, 3 * BLOCK + 1), min_size=1, max_size=6)


def shuffled(sizes: dict[int, int], tasks: int, seed: int) -> list[np.ndarray]:
    """The positions that each task has, as Spark deals blocks of rows and sorts them."""
    random = np.random.default_rng(seed)
    mine: list[list[np.ndarray]] = [[] for _ in range(tasks)]
    for partition, rows in sizes.items():
        for first in range(0, rows, BLOCK):
            offsets = np.arange(first, min(first + BLOCK, rows), dtype=np.int64)
            mine[random.integers(tasks)].append(partition * 2**33 + offsets)
    return [np.sort(np.concatenate([np.empty(0, np.int64), *parts])) for parts in mine]


def blocks_of(positions: np.ndarray, batch: int = 2**40) -> list[RowBlock]:
    """The blocks of a task that gets its rows in batches of so many."""
    found: list[RowBlock] = []
    for first in range(0, len(positions), batch):
        add_blocks(found, positions[first : first + batch], first)
    return found


@given(sizes=partitions, batch=st.integers(1, 2 * BLOCK))
def test_blocks_are_the_same_whatever_batches_their_rows_come_in(sizes, batch):
    (positions,) = shuffled(sizes, 1, 0)
    assert blocks_of(positions, batch) == blocks_of(positions)


@given(sizes=partitions, tasks=st.integers(1, 5), seed=st.integers(0, 99))
def test_each_row_has_one_number_which_is_its_place_in_the_frame(sizes, tasks, seed):
    held = shuffled(sizes, tasks, seed)
    announced = [Announcement(task, 0, blocks_of(positions)) for task, positions in enumerate(held)]
    ledger = Ledger(announced, sum(sizes.values()))
    at = ledger.locate(np.arange(len(ledger)))
    found = np.array([held[owner][place] for owner, place in zip(at.owners, at.places, strict=True)])
    assert (found == np.sort(np.concatenate(held))).all()


@given(sizes=partitions, seed=st.integers(0, 99))
def test_what_a_task_announced_before_it_was_tried_again_does_not_count(sizes, seed):
    held = shuffled(sizes, 2, seed)
    stale = Announcement(0, 0, [*blocks_of(held[0]), *blocks_of(held[1])])
    again = [Announcement(task, 1, blocks_of(positions)) for task, positions in enumerate(held)]
    assert len(Ledger([stale, *again], sum(sizes.values()))) == sum(sizes.values())


@given(sizes=partitions, seed=st.integers(0, 99))
def test_a_row_that_two_tasks_have_is_refused(sizes, seed):
    held = shuffled(sizes, 2, seed)
    twice = next(positions for positions in held if len(positions))
    announced = [Announcement(task, 0, blocks_of(positions)) for task, positions in enumerate([*held, twice])]
    with pytest.raises(ValueError, match=r"rows of partition \d+ from \d+ on are there twice"):
        Ledger(announced, sum(sizes.values()))


@given(sizes=partitions, seed=st.integers(0, 99))
def test_a_last_block_that_is_lost_leaves_no_gap_and_is_noticed(sizes, seed):
    (positions,) = shuffled(sizes, 1, seed)
    *kept, lost = blocks_of(positions)
    with pytest.raises(ValueError, match=rf"{len(positions) - lost.rows} rows came, and there were {len(positions)}"):
        Ledger([Announcement(0, 0, kept)], len(positions))


def test_rows_that_are_missing_before_others_are_refused():
    with pytest.raises(ValueError, match="partition 3 has rows from 1024 on and lacks earlier ones"):
        Ledger([Announcement(0, 0, [RowBlock(3, 1, 5, 0)])], 5)
    with pytest.raises(ValueError, match="partition 3 has rows from 1024 on and lacks earlier ones"):
        Ledger([Announcement(0, 0, [RowBlock(3, 0, 7, 0), RowBlock(3, 1, 5, 7)])], 12)


def test_a_task_without_rows_and_a_frame_without_any_are_of_length_0():
    assert len(Ledger([Announcement(0, 0, []), Announcement(1, 0, [])], 0)) == 0
