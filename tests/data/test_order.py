"""The order of samples in storage: a permutation in windows of blocks, which is as good as uniform, from any place."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from volary.data.order import WINDOW_BLOCKS, Windows

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
