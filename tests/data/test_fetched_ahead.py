"""A data set of one's own is fetched ahead of training: by one thread, in order, with every error where it belongs."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.data.datasets import fetched_ahead
from volary.data.datasets.fetched_ahead import AHEAD
from volary.data.datasets.user_source import samples_of
from volary.data.feed import Feed
from volary.data.skipping import Skipping
from volary.errors import CorruptSample, DataError
from volary.sharding.samples import SampleShare

ALONE = threading.Lock()  # what all of these data sets use, and only one thread may use at a time


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch) -> None:
    monkeypatch.setattr(fetched_ahead, "WORTH_S", 0.0)


class Slow:
    """Knows which samples were asked for, by which threads. gate: what it waits for. wrong: what it raises for some."""

    def __init__(self, count: int = 40, wrong: dict[int, BaseException] | None = None) -> None:
        self.count, self.wrong = count, wrong or {}
        self.asked: list[int] = []
        self.threads: set[str] = set()
        self.changed = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        assert self.gate.wait(60)
        assert ALONE.acquire(blocking=False)
        try:
            with self.changed:
                self.asked.append(index)
                self.threads.add(threading.current_thread().name)
                self.changed.notify_all()
            if index in self.wrong:
                raise self.wrong[index]
            return torch.full((2,), float(index)), index
        finally:
            ALONE.release()

    def wait_for(self, asked: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= asked, 60)


def fetchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fetch"]


def settle() -> None:
    for thread in fetchers():
        thread.join(60)


def feed_of(dataset, size: int = 4, **settings) -> Feed:
    return Feed(samples_of(dataset, "mine:Slow"), size, **settings)


def test_batches_are_fetched_while_the_consumer_computes_and_no_more_than_two():
    dataset = Slow()
    feed = feed_of(dataset)
    next(feed), next(feed)
    dataset.wait_for(1 + 4 * 4)  # nobody asks for the third and the fourth: the consumer computes
    settle()
    assert len(dataset.asked) == 1 + 4 * 4
    assert "fetch" in dataset.threads


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_samples_come_in_the_order_of_the_epoch_each_once_by_one_thread_at_a_time(count, size, world, shuffle):
    for rank in range(world):
        dataset = Slow(count)
        feed = feed_of(dataset, size, share=SampleShare(rank, world), shuffle=shuffle)
        feed.limit(3 * (feed.steps_per_epoch or 0))
        given_out: list[int] = []
        for batch in feed:
            assert batch.inputs[:, 0].tolist() == batch.targets.tolist()
            given_out += batch.targets.tolist()
        assert dataset.asked[1:] == given_out


@pytest.mark.parametrize("steps", [1, 3, 10, 14])
def test_a_resumed_feed_goes_on_with_the_very_next_sample_on_any_number_of_workers(steps):
    feed, whole = feed_of(Slow()), feed_of(Slow())
    before = [next(feed).targets.tolist() for _ in range(steps)]
    assert before == [next(whole).targets.tolist() for _ in range(steps)]
    resumed = [feed_of(Slow(), share=SampleShare(rank, 2)) for rank in range(2)]
    for one in resumed:
        one.restore(feed.state())
    for _ in range(12):
        first, second = (next(one).targets.tolist() for one in resumed)
        assert sorted(first + second) == sorted(next(whole).targets.tolist())
    settle()


def test_a_feed_that_is_set_back_fetches_ahead_again():
    dataset = Slow()
    feed = feed_of(dataset, shuffle=False)
    start = feed.state()
    for _ in range(4):
        next(feed)
    feed.restore(start)
    assert [next(feed).targets.tolist() for _ in range(10)] == [list(range(at, at + 4)) for at in range(0, 40, 4)]
    settle()
    dataset.threads.clear()
    for _ in range(5):
        next(feed)
    assert dataset.threads == {"fetch"}
    settle()


def test_an_error_is_raised_in_the_main_thread_with_its_sample_when_its_batch_is_taken():
    dataset = Slow(wrong={13: ValueError("no such picture")})
    feed = feed_of(dataset, shuffle=False)
    for _ in range(3):
        next(feed)
    settle()
    with pytest.raises(ValueError, match="no such picture") as failed:
        next(feed)
    assert set(failed.value.__notes__) == {"while sample 13 of mine:Slow was read"}
    settle()


def test_code_that_ends_the_thread_ends_the_consumer_as_well():
    feed = feed_of(Slow(wrong={9: SystemExit(3)}), shuffle=False)
    next(feed), next(feed)
    with pytest.raises(SystemExit):
        next(feed)
    settle()


def test_corrupt_samples_are_left_out_and_what_follows_is_still_fetched_ahead():
    dataset, told = Slow(wrong={index: CorruptSample("torn") for index in (9, 10, 20)}), []
    samples = Skipping(samples_of(dataset, "mine"), lambda index, why: told.append((index, why)))
    feed = Feed(samples, 4, shuffle=False)
    feed.limit(20)
    batches = [batch.targets.tolist() for batch in feed]
    assert [sample for batch in batches for sample in batch] == [n for n in range(40) if n not in (9, 10, 20)] * 2
    assert told == [(9, "torn"), (10, "torn"), (20, "torn")]
    dataset.threads.clear()
    feed.limit(30)
    assert len(list(feed)) == 10
    assert dataset.threads == {"fetch"}


@pytest.mark.parametrize("draw", [torch.rand, np.random.rand, lambda _: random.random()])
def test_of_a_data_set_that_draws_from_global_generators_nothing_is_fetched_ahead(draw):
    class Drawing(Slow):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            draw(1)
            return super().__getitem__(index)

    dataset = Drawing()
    feed = feed_of(dataset)
    for _ in range(10):
        next(feed)
    assert dataset.threads == {"MainThread"}
    assert len(dataset.asked) == 41


def test_a_data_set_that_takes_next_to_no_time_is_fetched_in_the_main_thread(monkeypatch):
    monkeypatch.setattr(fetched_ahead, "WORTH_S", 1000.0)
    dataset = Slow()
    feed = feed_of(dataset)
    for _ in range(10):
        next(feed)
    assert dataset.threads == {"MainThread"}


def test_a_data_set_that_works_in_the_main_thread_alone_is_fetched_there_and_that_is_told(caplog):
    class Affine(Slow):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("made in another thread")
            return super().__getitem__(index)

    feed = feed_of(Affine(), shuffle=False)
    assert [next(feed).targets.tolist() for _ in range(10)] == [list(range(at, at + 4)) for at in range(0, 40, 4)]
    settle()
    (record,) = caplog.records
    assert record.getMessage() == (
        "mine:Slow: failed in a thread (RuntimeError: made in another thread) and not in the main thread: no sample is "
        "fetched ahead any more"
    )


def test_a_data_set_that_gives_nothing_is_named_instead_of_waited_for(monkeypatch):
    monkeypatch.setattr(fetched_ahead, "STUCK_S", 0.05)
    dataset = Slow()
    feed = feed_of(dataset, shuffle=False)
    next(feed)
    dataset.gate.clear()
    try:
        with pytest.raises(DataError, match=r"^mine:Slow: sample \d+ has not been fetched for 0.05 s$"):
            for _ in range(1 + AHEAD):
                next(feed)
    finally:
        dataset.gate.set()
        settle()


def test_nothing_is_asked_for_beyond_the_last_step():
    dataset = Slow()
    feed = feed_of(dataset)
    feed.limit(4)
    assert len(list(feed)) == 4
    settle()
    assert len(dataset.asked) == 1 + 4 * 4
