"""Memory for batches that forked processes make: how many are ahead, who waits for whom, and who lets go of what."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
import torch

from data.loading._digits import Digits
from data.loading._numbered import InStore, always, opened, pids, values  # noqa: F401
from volary.data.caching.cached import through_cache
from volary.data.feed import Feed
from volary.data.loading import pipeline
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.scale import Scale
from volary.session.data_section import Cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads make all batches")


def test_memory_in_which_threads_made_the_first_batch_is_not_kept_once_processes_decode():
    samples = opened(400)
    feed = Feed(samples, 20)
    for _ in range(6):
        next(feed)
    assert pids(samples)
    assert samples._spare == []


def test_no_more_large_batches_are_made_ahead_than_fit_into_the_memory_for_them(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 3 * 20 * 2)
    samples = opened(400)
    feed = Feed(samples, 20)
    for _ in range(6):
        next(feed)
        assert len(samples._ahead) <= 3
    assert pids(samples)


def test_of_large_batches_two_are_in_memory_and_the_next_one_begins_when_the_consumer_lets_go_of_its_own(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 0)
    samples = opened(2000)
    feed = Feed(samples, 20)
    batch, addresses = next(feed), set()
    for _ in range(20):
        following = next(feed)
        waiting = samples._ahead[-1]
        assert not waiting.begun
        del batch
        assert waiting.begun
        assert values(following.inputs) == following.targets.tolist()
        addresses.add(following.inputs.data_ptr())
        batch = following  # noqa: F841 -- it is kept, as a for loop does
        del following
    assert pids(samples)
    assert len(addresses) == 2


def test_a_batch_that_another_thread_lets_go_of_makes_room_for_the_next_one(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 0)
    samples = opened(2000)
    feed, kept = Feed(samples, 20), []
    for _ in range(20):
        kept.append(next(feed))
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert all(made.begun for made in samples._ahead)
    assert pids(samples)


def test_who_keeps_a_batch_for_longer_gets_the_next_ones_ahead_in_more_memory(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 0)
    samples = opened(2000)
    feed = Feed(samples, 20)
    kept = [next(feed) for _ in range(3)]
    for _ in range(10):
        kept = [*kept[1:], next(feed)]
        assert all(made.begun for made in samples._ahead)
    assert [values(batch.inputs) for batch in kept] == [batch.targets.tolist() for batch in kept]


def test_large_batches_get_more_memory_once_one_was_late_and_the_one_before_was_not(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 3 * 20 * 2)
    samples = opened(2000)
    feed = Feed(samples, 20)
    batch = next(feed)
    batch = next(feed)
    slots = samples._forked._slots
    unused = len(slots.unused)
    until = time.monotonic() + 60
    while not samples.ready:
        samples._collect(0.1)
        assert time.monotonic() < until
    following = next(feed)
    assert len(slots.unused) == unused
    for pid in pids(samples):
        os.kill(pid, signal.SIGSTOP)
    batch = following
    del following
    goes_on = threading.Timer(0.05, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids(samples)])
    goes_on.start()
    batch = next(feed)
    goes_on.join()
    assert len(slots.unused) == unused - 1
    assert values(batch.inputs) == batch.targets.tolist()


def test_a_batch_that_waits_for_memory_is_made_by_threads_if_processes_die_meanwhile(monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", 0)
    samples = opened(2000)
    feed = Feed(samples, 20)
    kept = [next(feed) for _ in range(2)]
    assert not samples._ahead[-1].begun
    for pid in pids(samples):
        os.kill(pid, signal.SIGKILL)
    kept += [next(feed) for _ in range(5)]
    assert [values(batch.inputs) for batch in kept] == [batch.targets.tolist() for batch in kept]


def test_a_process_lets_go_of_the_batch_that_the_consumer_had_when_it_was_forked():
    samples = opened(400)
    batch = next(Feed(samples, 20))
    assert samples._lent_by_threads is not None
    _, _, (_, memory), _ = samples._lent_by_threads.peek()
    samples._let_go_of_the_first_batch()
    assert memory.size == 0
    del batch


def test_no_more_batches_are_made_ahead_than_there_are_slots_for(monkeypatch):
    monkeypatch.setattr(pipeline, "most_slots", lambda _: 8)
    samples = Pipeline(InStore(2000), torch.arange(2000), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(through_cache(samples, Cache(memory="1MB"), "of a test with few slots"), 20)
    feed.limit(2 * (feed.steps_per_epoch or 0))
    for batch in feed:
        assert values(batch.inputs) == batch.targets.tolist()
    assert pids(samples)
    assert samples._depth <= 7
