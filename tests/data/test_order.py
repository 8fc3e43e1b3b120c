"""The order of samples in storage: a permutation in windows of blocks, which is as good as uniform, from any place."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from volary.data.feed import Feed
from volary.data.order import WINDOW_BLOCKS, Windows
from volary.sharding.samples import SampleShare

SAMPLES, BLOCKS = st.integers(1, 3000), st.integers(2, 9)


@given(SAMPLES, BLOCKS, st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_every_sample_comes_once(samples, block, seed, epoch):
    assert sorted(Windows(samples, block, seed, epoch)[0:samples].tolist()) == list(range(samples))


@given(SAMPLES, BLOCKS, st.integers(0, 9), st.data())
def test_any_place_is_found_without_those_before_it(samples, block, epoch, data):
    whole = Windows(samples, block, 1, epoch)[0:samples]
    start = data.draw(st.integers(0, samples))
    end = data.draw(st.integers(start, samples))
    assert torch.equal(Windows(samples, block, 1, epoch)[start:end], whole[start:end])


@given(st.integers(1, 300), BLOCKS, st.integers(0, 99))
def test_a_window_reads_few_blocks_and_all_of_them(windows, block, epoch):
    samples = windows * WINDOW_BLOCKS * block
    order = Windows(samples, block, 3, epoch)
    size = WINDOW_BLOCKS * block
    blocks = order[(windows - 1) * size : samples] // block
    assert sorted(blocks.tolist()) == sorted(blocks.unique().tolist() * block)


def test_orders_differ_between_epochs_and_seeds():
    orders = {tuple(Windows(500, 4, seed, epoch)[0:500].tolist()) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_batches_of_data_that_is_stored_class_by_class_are_mixed_as_those_of_a_uniform_permutation():
    labels = torch.arange(20_000) // 2000
    orders = [Windows(20_000, 64, 1, epoch)[0:20_000] for epoch in range(4)]
    batches = [labels[order[at : at + 128]] for order in orders for at in range(0, 19_968, 128)]
    classes = torch.tensor([len(batch.unique()) for batch in batches], dtype=torch.float64)
    assert classes.mean() > 9.9  # a uniform permutation has 10.0
    worst = min(classes.tolist())
    assert worst >= 7


def test_over_the_epochs_a_sample_comes_at_any_place():
    # tenths of 600 epochs: 60 in each on average; chi-square with 9 degrees of freedom exceeds 40 once in 100,000
    orders = torch.stack([Windows(999, 4, 7, epoch)[0:999] for epoch in range(600)])
    for sample in (0, 499, 998):  # the first, one in the middle, and one that fills no block
        counts = torch.bincount((orders == sample).nonzero()[:, 1] * 10 // 999, minlength=10).double()
        assert float(((counts - 60) ** 2 / 60).sum()) < 40


class Many:
    """Samples in storage that are their own numbers."""

    block, classes, scale, input_shape, input_dtype = 64, None, None, (), torch.int64

    def __init__(self, count):
        self.count, self.read = count, 0

    def __len__(self):
        return self.count

    def prefetch(self, indices, epoch):
        return False

    def fetch(self, indices, epoch=0):
        self.read += len(indices)
        return indices, indices

    def take(self, indices, epoch):
        return self.fetch(indices, epoch)


@pytest.mark.parametrize("count", [50_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_an_epoch_goes_on_at_any_position_on_other_workers_once_and_without_replay(count):
    seen, state = torch.zeros(count, dtype=torch.uint8), ""
    for world, batches in ((2, 13), (5, 29), (1, 7), (3, 10**6)):
        before, samples = int(seen.sum()), [Many(count) for _ in range(world)]
        feeds = [Feed(one, count // 101, share=SampleShare(rank, world)) for rank, one in enumerate(samples)]
        for feed in feeds if state else ():
            feed.restore(json.loads(state))
        for _ in range(batches):
            shares = [next(feed) for feed in feeds]
            for share in shares:
                seen[share.inputs] += 1
            if shares[0].ends_epoch:
                break
        assert sum(one.read for one in samples) == int(seen.sum()) - before
        state = json.dumps(feeds[0].state())
        assert len(state) <= 200
    assert (seen == 1).all()


def test_a_position_among_10_million_is_200_bytes_and_is_found_by_reading_one_batch():
    first = Feed(Many(10_000_000), 128)
    state = json.dumps(first.state() | {"epoch": 3, "position": 8_999_936, "step": 304_687})
    assert len(state) <= 200
    samples = [Many(10_000_000) for _ in range(3)]
    feeds = [Feed(one, 128, share=SampleShare(rank, 3)) for rank, one in enumerate(samples)]
    for feed in feeds:
        feed.restore(json.loads(state))
    found = torch.cat([next(feed).inputs for feed in feeds])
    expected = Windows(10_000_000, 64, 1, 3)[8_999_936 : 8_999_936 + 128]
    assert sorted(found.tolist()) == sorted(expected.tolist())
    assert sum(one.read for one in samples) == 128
