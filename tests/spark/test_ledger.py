"""Every row of a frame exactly once, whatever its partitions are, who has them, and what Spark tried again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.executors.ledger import Announcement, Ledger, RowBlock, add_rows

partitions = st.dictionaries(st.integers(0, 40), st.integers(1, 300), min_size=1, max_size=6)


def dealt(sizes: dict[int, int], tasks: int, seed: int) -> list[np.ndarray]:
    """The positions that each task has: whole partitions, one after another, in any order, as Spark coalesces them."""
    random = np.random.default_rng(seed)
    mine: list[list[np.ndarray]] = [[] for _ in range(tasks)]
    for partition in random.permutation(list(sizes)):
        mine[random.integers(tasks)].append(int(partition) * 2**33 + np.arange(sizes[partition], dtype=np.int64))
    return [np.concatenate([np.empty(0, np.int64), *parts]) for parts in mine]


def blocks_of(positions: np.ndarray, batch: int = 2**40) -> list[RowBlock]:
    """The blocks of a task that gets its rows in batches of so many."""
    found: list[RowBlock] = []
    for first in range(0, len(positions), batch):
        add_rows(found, positions[first : first + batch], first)
    return found


@given(sizes=partitions, batch=st.integers(1, 400), seed=st.integers(0, 99))
def test_a_partition_is_one_block_whatever_batches_its_rows_come_in(sizes, batch, seed):
    (positions,) = dealt(sizes, 1, seed)
    assert blocks_of(positions, batch) == blocks_of(positions)
    assert sorted(block[:3] for block in blocks_of(positions)) == sorted((one, 0, rows) for one, rows in sizes.items())


@given(sizes=partitions, tasks=st.integers(1, 5), seed=st.integers(0, 99))
def test_each_row_has_one_number_which_is_its_place_in_the_frame(sizes, tasks, seed):
    held = dealt(sizes, tasks, seed)
    announced = [Announcement(task, blocks_of(positions)) for task, positions in enumerate(held)]
    ledger = Ledger(announced, sum(sizes.values()))
    at = ledger.locate(np.arange(len(ledger)))
    found = np.array([held[owner][place] for owner, place in zip(at.owners, at.places, strict=True)])
    assert (found == np.sort(np.concatenate(held))).all()


@given(sizes=partitions, seed=st.integers(0, 99))
def test_a_row_that_two_tasks_have_is_refused(sizes, seed):
    held = dealt(sizes, 2, seed)
    twice = next(positions for positions in held if len(positions))
    announced = [Announcement(task, blocks_of(positions)) for task, positions in enumerate([*held, twice])]
    with pytest.raises(ValueError, match=r"rows of partition \d+ from \d+ on are there twice"):
        Ledger(announced, sum(sizes.values()))


@given(sizes=partitions, seed=st.integers(0, 99))
def test_a_partition_that_is_lost_leaves_no_gap_and_is_noticed(sizes, seed):
    (positions,) = dealt(sizes, 1, seed)
    *kept, lost = blocks_of(positions)
    with pytest.raises(ValueError, match=rf"{len(positions) - lost.rows} rows came, and there were {len(positions)}"):
        Ledger([Announcement(0, kept)], len(positions))


def test_rows_that_are_missing_before_others_are_refused():
    with pytest.raises(ValueError, match="partition 3 has rows from 7 on and lacks earlier ones"):
        Ledger([Announcement(0, [RowBlock(3, 7, 5, 0)])], 5)
    with pytest.raises(ValueError, match="partition 3 has rows from 9 on and lacks earlier ones"):
        Ledger([Announcement(0, [RowBlock(3, 0, 7, 0), RowBlock(3, 9, 5, 7)])], 12)


def test_a_task_without_rows_and_a_frame_without_any_are_of_length_0():
    assert len(Ledger([Announcement(0, []), Announcement(1, [])], 0)) == 0
