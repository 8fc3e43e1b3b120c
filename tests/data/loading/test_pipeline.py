"""Threads read and decode ahead: the same batches whatever happens beside, nothing lost, no wait for ever."""

from __future__ import annotations

import threading
from itertools import zip_longest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.loading._digits import Digits
from volary.data.datasets.mixed import together
from volary.data.feed import Feed, one_pass
from volary.data.loading import pipeline
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.scale import Scale
from volary.data.skipping import Skipping
from volary.errors import CorruptSample, DataError
from volary.sharding.samples import SampleShare


class Numbered:
    """Records that say which they are. gate: reading waits for it."""

    block, remote = 4, False

    def __init__(self, count: int, corrupt: frozenset[int] = frozenset()) -> None:
        self.count, self.corrupt = count, corrupt
        self.gate = threading.Event()
        self.gate.set()
        self.read_so_far: list[int] = []
        self.expected: list[list[int]] = []

    def __len__(self) -> int:
        return self.count

    def name(self, index: int) -> str:
        return f"record {index}"

    def expect(self, indices) -> None:
        self.expected.append(list(indices))

    def read(self, index: int) -> bytes:
        assert self.gate.wait(60)
        self.read_so_far.append(index)
        return b"" if index in self.corrupt else index.to_bytes(2)


def opened(records: Numbered, **settings) -> Pipeline:
    return Pipeline(records, torch.arange(len(records)), None, Digits(), Scale(1.0, 0.0), **settings)


CPU = torch.device("cpu")


def values(inputs: torch.Tensor) -> list[int]:
    if inputs.dtype == torch.uint8:
        inputs = inputs.permute(0, 3, 1, 2).float()
    return (inputs[:, 0, 0, 0] * 256 + inputs[:, 0, 0, 1]).long().tolist()


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(1, 50), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_a_feed_gives_the_same_batches_whatever_the_number_of_threads(samples, batch, world, count, cached):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        for rank in range(world):
            records = Numbered(samples)
            feed = Feed(opened(records, cache_bytes=cached * 10**6), batch, share=SampleShare(rank, world))
            feed.limit(2 * (feed.steps_per_epoch or 0))
            batches = list(feed)
            assert [values(b.inputs) for b in batches] == [b.targets.tolist() for b in batches]
            for epoch in range(2):
                expected = Feed(opened(Numbered(samples)), samples)
                expected.epoch = epoch
                order = next(expected).targets
                mine = [index for b in batches if b.epoch == epoch for index in b.targets.tolist()]
                steps = [order[at : at + batch] for at in range(0, samples, batch)]
                shares = [step[SampleShare(rank, world).of(len(step), batch)].tolist() for step in steps]
                assert mine == [index for share in shares for index in share]
    finally:
        torch.set_num_threads(before)


def test_resuming_on_another_number_of_workers_gives_every_sample_once_and_reads_no_batch_again():
    feeds = [Feed(opened(Numbered(1000)), 30, share=SampleShare(rank, 3)) for rank in range(3)]
    seen = [i for _ in range(9) for feed in feeds for i in next(feed).targets.tolist()]
    state = feeds[0].state()
    assert len(str(state)) <= 200
    records = [Numbered(1000) for _ in range(2)]
    resumed = [Feed(opened(one), 30, share=SampleShare(rank, 2)) for rank, one in enumerate(records)]
    for feed in resumed:
        feed.restore(state)
        feed.limit(feed.steps_per_epoch or 0)
        seen += [i for batch in feed for i in batch.targets.tolist()]
    assert sorted(seen) == list(range(1000))
    read = [index for one in records for index in one.read_so_far]
    assert len(read) == 1000 - 9 * 30 + 2  # the first is looked at for its shape


def test_what_comes_next_is_read_while_the_consumer_is_busy_and_no_more_than_that():
    records = Numbered(10_000)
    feed = Feed(opened(records), 10)
    next(feed)
    ahead = 10 * pipeline.AHEAD

    def settled() -> bool:
        return len(records.read_so_far) >= 1 + ahead and not decoders()

    _within(settled)
    assert len(records.read_so_far) == 1 + ahead
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Numbered, "read", lambda *_: pytest.fail("it was at hand"))
        feed.limit(feed.step)
        next_one = feed.read(10)
    assert values(next_one.inputs) == next_one.targets.tolist()


def test_two_feeds_of_the_same_samples_at_the_same_time_lose_and_double_nothing():
    samples = opened(Numbered(90))
    feeds = [Feed(samples, size, seed=size) for size in (10, 7)]
    for feed in feeds:
        feed.limit(2 * (feed.steps_per_epoch or 0))
    found: list[list[int]] = [[], []]
    for batches in zip_longest(*feeds):
        for mine, batch in zip(found, batches, strict=True):
            if batch is not None:
                assert values(batch.inputs) == batch.targets.tolist()
                mine += batch.targets.tolist()
    assert [sorted(mine) for mine in found] == [sorted([*range(90)] * 2)] * 2


def test_two_sources_that_feed_one_session_at_the_same_time_are_decoded_ahead_and_once():
    records = [Numbered(60), Numbered(30)]
    feed = Feed(together([opened(one) for one in records], "both"), 9)
    feed.limit(feed.steps_per_epoch or 0)
    first = next(feed)
    _within(lambda: sum(len(one.read_so_far) for one in records) == 2 + 9 * pipeline.AHEAD and not decoders())
    batches = [first, *feed]
    # a sample's target is its number in its own source
    assert sorted(index for batch in batches for index in batch.targets.tolist()) == sorted([*range(60), *range(30)])
    assert [len(one.read_so_far) for one in records] == [61, 31], "the first is looked at for its shape"


def decoders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "decode"]


def _within(condition) -> None:
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not come to that")


def test_nothing_is_read_beyond_the_last_step_of_a_run_or_of_an_evaluation():
    records = Numbered(100)
    feed = Feed(opened(records), 10)
    feed.limit(3)
    assert len(list(feed)) == 3
    _within(lambda: not decoders())
    assert len(records.read_so_far) == 1 + 30
    records = Numbered(100)
    assert sum(batch.count for batch in one_pass(opened(records), 30)) == 100
    _within(lambda: not decoders())
    assert len(records.read_so_far) == 1 + 100


def test_batches_that_were_told_and_never_fetched_are_dropped():
    samples = opened(Numbered(100))
    for start in range(0, 10 * pipeline.AHEAD, 10):
        assert samples.prefetch(torch.arange(start, start + 10), 0)
    assert not samples.prefetch(torch.arange(30, 40), 0)
    for start in (20, 70, 0, 0):
        inputs, targets = samples.fetch(torch.arange(start, start + 10))
        assert values(inputs) == targets.tolist() == list(range(start, start + 10))


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_corrupt_samples_are_told_by_name_and_the_rest_of_the_batch_is_decoded_once(cache_bytes):
    records = Numbered(40, corrupt=frozenset({3, 5, 17}))
    told: list[tuple[int, str]] = []
    samples = Skipping(opened(records, cache_bytes=cache_bytes), lambda *what: told.append(what))
    batches = list(one_pass(samples, 10))
    assert [batch.lost for batch in batches] == [2, 1, 0, 0]
    assert [i for b in batches for i in values(b.inputs)] == [i for i in range(40) if i not in (3, 5, 17)]
    assert told[0] == (3, "record 3: not a number that can be decoded (it is empty)")
    assert [index for index, _ in told] == [3, 5, 17]
    assert len(records.read_so_far) == 1 + 40


def test_without_skipping_the_first_corrupt_one_is_raised_with_its_number():
    with pytest.raises(CorruptSample, match=r"^record 7: not a number that can be decoded \(it is empty\)$") as problem:
        opened(Numbered(10, corrupt=frozenset({7, 8}))).fetch(torch.tensor([9, 7, 8]))
    assert problem.value.index == 7


def test_storage_that_gives_nothing_is_named_instead_of_waited_for(monkeypatch):
    monkeypatch.setattr(pipeline, "STUCK_S", 0.1)
    records = Numbered(10)
    samples = opened(records)
    records.gate.clear()
    try:
        with pytest.raises(DataError) as problem:
            samples.fetch(torch.tensor([4, 5]))
    finally:
        records.gate.set()
    assert str(problem.value) == "record 4: storage gave none of the samples of a batch for 0.1 s"


def test_20_epochs_take_no_more_memory_than_the_first():
    samples = opened(Numbered(512))
    feed = Feed(samples, 64)
    feed.limit(8)
    list(feed)
    held = len(samples._spare)
    feed.limit(20 * 8)
    list(feed)
    assert len(samples._spare) <= max(held, pipeline.AHEAD)
    assert not samples._ahead


def test_a_batch_is_not_changed_by_those_that_follow():
    feed = Feed(opened(Numbered(200)), 10)
    batches = [next(feed) for _ in range(12)]
    assert [values(batch.inputs) for batch in batches] == [batch.targets.tolist() for batch in batches]


def test_bytes_become_values_on_the_device_and_once():
    samples = Pipeline(Numbered(8), torch.arange(8), None, Digits(), Scale(0.5, 1.0))
    batch = next(Feed(samples, 8, shuffle=False))
    assert batch.inputs.dtype == torch.uint8
    moved = batch.to(CPU)
    assert moved.to(CPU) is moved
    torch.testing.assert_close(moved.inputs, samples.fetch(torch.arange(8))[0])
    assert moved.inputs[:, 0, 0, 1].tolist() == [1 + index / 2 for index in range(8)]
    assert [part.inputs.shape for part in moved.parts(3)] == [(3, 1, 1, 2), (3, 1, 1, 2), (2, 1, 1, 2)]


def test_memory_that_somebody_has_is_not_written_and_that_which_nobody_has_is(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 0)  # no more batches ahead than at the start
    feed = Feed(opened(Numbered(4000)), 10)
    first = next(feed)
    kept, addresses = first.inputs.clone(), set()
    for _ in range(50):
        addresses.add(next(feed).inputs.data_ptr())
    assert first.inputs.data_ptr() not in addresses
    assert torch.equal(first.inputs, kept)
    assert len(addresses) <= 2 * pipeline.AHEAD


@pytest.mark.parametrize("memory_bytes", [10**6, 0])
def test_more_is_made_ahead_once_a_batch_was_late_within_the_bound_of_memory(monkeypatch, memory_bytes):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", memory_bytes)
    records = Numbered(10_000)
    samples = opened(records)
    feed = Feed(samples, 10)
    next(feed)
    for late in range(3):
        _within(lambda: not decoders())
        assert samples.ready == pipeline.AHEAD - 1 + late * bool(memory_bytes)  # less the one that was fetched
        records.gate.clear()
        for _ in range(samples.ready):
            next(feed)  # they are ready, and none takes their place
        opening = threading.Timer(0.05, records.gate.set)
        opening.start()
        next(feed)
        opening.join()
        next(feed)  # tells storage of as many as there is room for now


@pytest.mark.parametrize("memory_bytes", [10**6, 0])
def test_a_store_is_asked_for_many_batches_from_the_start_within_the_bound_of_memory(monkeypatch, memory_bytes):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", memory_bytes)
    records = Numbered(10_000)
    records.remote = True
    samples = opened(records)
    feed = Feed(samples, 10)
    next(feed)
    assert len(samples._ahead) == (pipeline.MOST_AHEAD if memory_bytes else pipeline.AHEAD) - 1
    next(feed)
    assert len(samples._ahead) == (pipeline.MOST_AHEAD if memory_bytes else pipeline.AHEAD) - 1


def test_a_stuck_reader_does_not_keep_a_prefetch_waiting():
    records = Numbered(50)
    samples = opened(records)
    records.gate.clear()
    assert samples.prefetch(torch.arange(10), 0)
    records.gate.set()
    assert values(samples.fetch(torch.arange(10))[0]) == list(range(10))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_code_that_ends_a_decoding_thread_is_told_at_once(error):
    class Ending(Digits):
        def __call__(self, record, out=None):
            if bytes(record)[:2] == bytes([0, 7]):
                raise error("out")
            return super().__call__(record, out)

    samples = Pipeline(Numbered(20), torch.arange(20), None, Ending(), None)
    with pytest.raises(DataError, match=f"raised {error.__name__}"):
        list(one_pass(samples, 5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_batches_of_a_process_with_a_cuda_device_are_in_pinned_memory():
    torch.cuda.init()
    inputs, _ = opened(Numbered(10)).take(torch.arange(5), 0)
    assert inputs.is_pinned()
