"""Streams in shards: each worker reads its own, every sample comes once, and batches are the same for any number."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.distributed import HashStore

from volary.data.batching.batch import Batch
from volary.data.datasets.user_source import samples_of
from volary.data.feed import Feed
from volary.errors import DataError
from volary.sharding.samples import SampleShare
from volary.train.member.bulletin import BoardBulletin

LENGTHS = (5, 2, 7, 0, 3)


class Counted:
    """Shard s has the samples 100 s, 100 s + 1, ..., beginning 1000 later with each epoch; opened: which were read."""

    def __init__(self, lengths: tuple[int, ...] = LENGTHS) -> None:
        self.lengths, self.num_shards, self.epoch = lengths, len(lengths), 0
        self.opened: set[int] = set()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def shard(self, num_shards: int, index: int) -> Iterator[tuple[float, int]]:
        assert num_shards == self.num_shards
        self.opened.add(index)
        first = 1000 * self.epoch + 100 * index
        return ((float(first + number), index) for number in range(self.lengths[index]))


def read(
    workers: int,
    batches: int,
    size: int = 4,
    *,
    state: dict[str, int] | None = None,
    lengths: tuple[int, ...] = LENGTHS,
    store: HashStore | None = None,
) -> tuple[list[list[Batch]], list[dict[str, int]], list[Counted]]:
    """Batches of each worker, its place after each of them, and what it read. store: where they tell each other."""
    store = store or HashStore()

    def one(rank: int) -> tuple[list[Batch], list[dict[str, int]], Counted]:
        counted = Counted(lengths)
        stream: Any = samples_of(counted, "mine")
        share = SampleShare(rank, workers)
        stream.divide(share, BoardBulletin(store, rank, workers, 0))
        feed = Feed(stream, size, share=share, shuffle=False)
        if state is not None:
            feed.restore(state)
        found = [(next(feed), feed.state()) for _ in range(batches)]
        return [batch for batch, _ in found], [after for _, after in found], counted

    with ThreadPoolExecutor(workers) as pool:
        each = list(pool.map(one, range(workers)))
    return [batches for batches, _, _ in each], each[0][1], [counted for _, _, counted in each]


def together(shares: list[list[Batch]]) -> list[list[int]]:
    """The samples of each batch, of all workers."""
    return [sorted(int(one) for batch in step for one in batch.inputs.tolist()) for step in zip(*shares, strict=True)]


ALONE, PLACES, _ = read(1, 20)
EPOCH = next(number for number, batch in enumerate(ALONE[0]) if batch.ends_epoch) + 1


def test_every_sample_comes_once_an_epoch_and_the_next_one_is_another():
    all_of = [100 * shard + number for shard, length in enumerate(LENGTHS) for number in range(length)]
    assert sorted(one for batch in together(ALONE)[:EPOCH] for one in batch) == all_of
    assert sorted(one for batch in together(ALONE)[EPOCH : 2 * EPOCH] for one in batch) == [
        1000 + one for one in all_of
    ]
    assert [batch.epoch for batch in ALONE[0]] == [number // EPOCH for number in range(20)]


@pytest.mark.parametrize("size", [2, 4, 5, 12])
@pytest.mark.parametrize("workers", [2, 3, 5, 7])
def test_any_number_of_workers_has_the_batches_of_one(workers: int, size: int):
    alone, _, _ = read(1, 12, size)
    shares, _, _ = read(workers, 12, size)
    assert together(shares) == together(alone)
    for mine in shares:
        assert [(b.total, b.ends_epoch, b.epoch) for b in mine] == [(b.total, b.ends_epoch, b.epoch) for b in alone[0]]


def test_each_worker_reads_its_own_shards_alone():
    _, _, counted = read(2, 3)
    assert [sorted(one.opened) for one in counted] == [[0, 2, 4], [0, 1, 3]]  # 0: of the first sample's shape
    _, _, counted = read(7, 3)
    assert all(one.opened == set(range(5)) for one in counted)


@pytest.mark.parametrize("done", range(9))
def test_a_run_goes_on_where_it_was_with_any_number_of_workers(done: int):
    state = PLACES[done - 1] if done else None
    for workers in (1, 2, 3):
        shares, _, _ = read(workers, 3, state=state)
        assert together(shares) == together(ALONE)[done : done + 3]


def test_shards_without_samples_and_a_shorter_stream_are_refused():
    with pytest.raises(DataError, match="mine: empty: no sample in epoch 0; accepted: at least one sample"):
        samples_of(Counted((0, 0)), "mine")
    with pytest.raises(DataError, match="mine: num_shards is 0; accepted: 1 or more"):
        samples_of(Counted(()), "mine")
    with pytest.raises(
        DataError, match=r"a batch ends after sample 2, and the run had read 7; accepted: the same data"
    ):
        read(1, 1, state=PLACES[1], lengths=(1, 1, 0, 0, 0))


def test_workers_leave_nothing_behind_of_what_they_told():
    store = HashStore()
    read(2, 80, size=2, lengths=(90, 90), store=store)
    assert store.num_keys() <= 4  # of the newest two times, of ten or more
