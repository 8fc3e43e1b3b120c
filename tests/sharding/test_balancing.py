"""Shares that follow speed: simulated ranks of any speed, with noise and jumps; and how batches are divided by them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from volary.sharding.balancing import APART, MOST, PASSING, WINDOW, BalancedShares, balanced
from volary.sharding.samples import SampleShare, divided


def ends(shares: BalancedShares, sample_s: list[float], fixed_s: float = 0.0) -> list[float]:
    """When each rank finishes a step: fixed_s, and some seconds for each sample."""
    return [fixed_s + size * one for size, one in zip(shares.each, sample_s, strict=True)]


def run(
    shares: BalancedShares,
    sample_s: list[float],
    steps: int,
    *,
    draw: random.Random | None = None,
    noise: float = 0.0,
    fixed_s: float = 0.0,
) -> int:
    """Let ranks make steps; how often shares changed."""
    changed, batch = 0, sum(shares.each)
    for _ in range(steps):
        took = ends(shares, sample_s, fixed_s)
        vary = [1.0 if draw is None else draw.lognormvariate(0, noise) for _ in took]
        changed += shares.see([one * by / size for one, by, size in zip(took, vary, shares.each, strict=True)])
        assert sum(shares.each) == batch and min(shares.each) >= 1
    return changed


def as_near_as_samples_allow(shares: BalancedShares, took: list[float], within: float) -> bool:
    """Whether ranks finish so near to each other, or the last would not be earlier with a sample less for it."""
    last = took.index(max(took))
    others = (took[rank] * (size + 1) / size for rank, size in enumerate(shares.each) if rank != last)
    return max(took) - min(took) <= within * max(took) or shares.each[last] <= 2 or min(others) >= max(took)


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_any_speed_finish_within_a_tenth_of_each_other(seed):
    draw = random.Random(seed)
    ranks = draw.randint(2, 12)
    batch = draw.randint(8 * ranks, 100 * ranks)
    sample_s = [draw.uniform(1, 1.5) * draw.choice([1, 1, 3, 8]) for _ in range(ranks)]
    fixed_s = draw.choice([0.0, 0.0, batch / ranks])
    shares = BalancedShares(batch, ranks)
    run(shares, sample_s, 40 * WINDOW, fixed_s=fixed_s)
    assert sum(shares.each) == batch
    assert as_near_as_samples_allow(shares, ends(shares, sample_s, fixed_s), APART)
    assert run(shares, sample_s, 10 * WINDOW, fixed_s=fixed_s) == 0  # and then nothing moves any more


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_keep_shares_from_the_speeds_and_jumps_are_followed(seed):
    draw = random.Random(seed)
    ranks, noise = draw.randint(2, 8), draw.choice([0.02, 0.1, 0.2])
    shares = BalancedShares(64 * ranks, ranks, least=2)
    for _ in range(3):
        sample_s = [draw.choice([1.0, 1.0, 1.7, 3.0, 6.0]) for _ in range(ranks)]
        run(shares, sample_s, 16 * MOST, draw=draw, noise=noise)
        assert sum(shares.each) == 64 * ranks and min(shares.each) >= 4
        assert as_near_as_samples_allow(shares, ends(shares, sample_s), APART + 2 * noise)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_equal_ranks_keep_equal_shares(noise):
    shares = BalancedShares(100, 3)
    assert run(shares, [1.0, 1.02, 0.97], 200 * WINDOW, draw=random.Random(1), noise=noise) == 0
    assert (shares.sizes, shares.each) == ((), [34, 33, 33])


def test_a_rank_that_is_three_times_slower_has_a_third_of_what_others_have_after_one_comparison():
    shares = BalancedShares(100, 4)
    assert run(shares, [1.0, 3.0, 1.0, 1.0], PASSING + WINDOW) == 1
    assert shares.each == [30, 10, 30, 30]


def test_a_step_in_which_a_rank_had_no_sample_says_nothing():
    shares = BalancedShares(8, 2)
    assert not any(shares.see([1.0, 0.0]) for _ in range(MOST))


def test_nobody_gets_less_than_it_needs_however_slow():
    assert balanced(20, [1.0, 1000.0, 1.0], 2) == [9, 2, 9]
    assert balanced(6, [1.0, 1000.0, 1.0], 2) == [2, 2, 2]
    assert BalancedShares(7, 4).each == [2, 2, 2, 1]


def test_shares_of_a_checkpoint_are_taken_if_they_are_of_as_many_ranks():
    shares = BalancedShares(12, 2)
    shares.take([9, 3])
    assert shares.each == [9, 3]
    shares.take([4, 4, 4])
    assert (shares.sizes, shares.each) == ((), [6, 6])


@pytest.mark.parametrize("sizes", [(30, 10, 30, 30), (3, 2), (97, 2, 2), (1, 1, 6)])
def test_every_batch_is_divided_whole_and_in_order(sizes):
    whole = sum(sizes)
    for total in range(1, 2 * whole):
        own = [range(total)[SampleShare(rank, len(sizes), sizes).of(total, whole)] for rank in range(len(sizes))]
        assert [place for part in own for place in part] == list(range(total))
        assert total != whole or tuple(map(len, own)) == sizes
        if 2 <= total < whole and min(sizes) >= 2:
            assert 1 not in map(len, own), "batch norm fails with a single sample"


def test_more_samples_are_no_less_for_anybody_by_more_than_one():
    shares = [divided(total, (5, 20, 75)) for total in range(1, 300)]
    assert all(after >= before - 1 for one, two in pairwise(shares) for before, after in zip(one, two, strict=True))
