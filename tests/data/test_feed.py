"""The order of samples: each once per epoch, whoever takes them, wherever one goes on."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.data.feed import Feed, one_pass
from volary.data.idle import refuse_idle_workers
from volary.data.memory import InMemory
from volary.data.order import epoch_order
from volary.errors import DataError, SettingError
from volary.sharding.samples import SampleShare

SIZES = st.integers(1, 60)
BATCHES = st.integers(1, 17)
WORLDS = st.integers(1, 7)


def numbered(samples: int) -> InMemory:
    """Samples that say which they are."""
    return InMemory(torch.arange(samples, dtype=torch.float32).view(-1, 1), torch.arange(samples))


def feeds(samples: int, batch: int, world: int, **settings) -> list[Feed]:
    return [Feed(numbered(samples), batch, share=SampleShare(rank, world), **settings) for rank in range(world)]


def step(of: list[Feed]) -> tuple[list[int], int]:
    """One step of all workers: the samples in the order of the global batch, and the total that each was told."""
    batches = [next(feed) for feed in of]
    (total,) = {batch.total for batch in batches}
    assert all(batch.inputs.view(-1).tolist() == batch.targets.tolist() for batch in batches)
    rows = itertools.zip_longest(*(batch.targets.tolist() for batch in batches))
    return [index for row in rows for index in row if index is not None], total


def epoch(of: list[Feed]) -> list[int]:
    here, seen = of[0].epoch, []
    while of[0].epoch == here:
        indices, total = step(of)
        assert len(indices) == total
        seen += indices
    return seen


@given(SIZES, BATCHES, WORLDS, st.booleans())
def test_every_sample_is_used_exactly_once_per_epoch(samples, batch, world, shuffle):
    of = feeds(samples, batch, world, shuffle=shuffle)
    for _ in range(2):
        assert sorted(epoch(of)) == list(range(samples))


@given(SIZES, st.lists(st.tuples(WORLDS, BATCHES, st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 99))
def test_resizes_in_the_middle_of_an_epoch_lose_and_repeat_nothing(samples, stages, seed):
    state = Feed(numbered(samples), 1, seed=seed).state()
    seen: list[int] = []
    for world, batch, steps in stages:
        of = feeds(samples, batch, world, seed=seed)
        for feed in of:
            feed.restore(state)
        for _ in range(steps):
            seen += step(of)[0]
        (state,) = {tuple(feed.state().items()) for feed in of}
        state = dict(state)
    alone = Feed(numbered(samples), 1, seed=seed)
    assert seen == [int(next(alone).targets) for _ in seen]


@given(SIZES, BATCHES, WORLDS, st.integers(0, 2**63 - 1))
def test_same_seed_gives_the_same_global_batches_on_any_number_of_workers(samples, batch, world, seed):
    one, many = feeds(samples, batch, 1, seed=seed), feeds(samples, batch, world, seed=seed)
    for _ in range(6):
        assert step(one) == step(many)


@given(SIZES, BATCHES, st.integers(0, 20))
def test_resumed_feed_equals_an_uninterrupted_one(samples, batch, steps):
    feed, resumed = Feed(numbered(samples), batch), Feed(numbered(samples), batch)
    for _ in range(steps):
        next(feed)
    resumed.restore(feed.state())
    for _ in range(8):
        expected, found = next(feed), next(resumed)
        assert torch.equal(expected.targets, found.targets)
        assert (expected.epoch, expected.step_in_epoch, expected.ends_epoch, expected.total) == (
            found.epoch,
            found.step_in_epoch,
            found.ends_epoch,
            found.total,
        )
    assert feed.state() == resumed.state()


@given(SIZES, BATCHES, WORLDS, st.lists(st.floats(1, 5), min_size=1, max_size=9))
def test_batches_that_grow_use_every_sample_once_and_count_as_many_steps(samples, batch, world, factors):
    of, alike = feeds(samples, batch, world), Feed(numbered(samples), batch)
    growing = itertools.cycle(factors)
    for number in range(2):
        seen: list[int] = []
        while of[0].epoch == number:
            for feed, factor in zip(of, [next(growing)] * world, strict=True):
                feed.size = int(factor * batch)
            seen += step(of)[0]
        while alike.epoch == number:
            next(alike)
        assert sorted(seen) == list(range(samples))
        assert {feed.step for feed in of} == {alike.step}


@given(SIZES, BATCHES, st.floats(1, 5), st.integers(0, 9), st.integers(1, 30))
def test_batches_ahead_are_those_that_come(samples, batch, factor, before, limit):
    feed = Feed(numbered(samples), batch)
    feed.limit(limit)
    for _ in itertools.islice(feed, before):
        pass
    feed.size = int(factor * batch)
    ahead, in_halves = feed.batches_ahead, feed.size > batch and limit % feed.steps_per_epoch
    assert len(list(feed)) - ahead in ((0, 1) if in_halves else (0,))


def test_no_grown_batch_is_a_small_remainder():
    feed = Feed(numbered(25), 4)
    feed.size = 8
    assert [next(feed).total for _ in range(4)] == [8, 8, 5, 4]


@given(SIZES, BATCHES, WORLDS)
def test_one_pass_visits_the_validation_samples_once_in_order_in_equally_many_batches(samples, batch, world):
    passes = [list(one_pass(numbered(samples), batch, SampleShare(r, world))) for r in range(world)]
    assert {len(batches) for batches in passes} == {-(-samples // batch)}
    assert sorted(i for batches in passes for b in batches for i in b.targets.tolist()) == list(range(samples))
    assert sum(b.weight * b.total for batches in passes for b in batches) == pytest.approx(samples)


def test_orders_differ_between_epochs_and_between_seeds():
    orders = {tuple(epoch_order(50, seed, number, True).tolist()) for seed in range(4) for number in range(4)}
    assert len(orders) == 16


def test_without_shuffle_samples_come_as_they_are():
    assert epoch(feeds(10, 4, 1, shuffle=False)) == list(range(10))


def test_worker_without_a_share_of_the_last_batch_gets_an_empty_one():
    of = feeds(5, 4, 3)
    step(of)
    last = [next(feed) for feed in of]
    assert [batch.count for batch in last] == [1, 0, 0]
    assert (last[2].inputs.shape, last[2].targets.shape, last[2].total, last[2].weight) == ((0, 1), (0,), 1, 0.0)
    assert all(batch.ends_epoch for batch in last)


def test_feed_ends_at_its_limit_counted_from_the_beginning_of_the_run():
    feed = Feed(numbered(10), 4)
    assert (feed.steps_per_epoch, feed.steps_in(2), feed.steps_in(0.5), feed.steps_in(0.01)) == (3, 6, 2, 1)
    feed.limit(feed.steps_in(2))
    assert [(b.epoch, b.step_in_epoch, b.ends_epoch) for b in feed] == [
        (e, s, s == 2) for e in range(2) for s in range(3)
    ]
    assert list(feed) == []
    resumed = Feed(numbered(10), 4)
    resumed.restore(feed.state())
    resumed.limit(8)
    assert len(list(resumed)) == 2


def test_state_is_plain_numbers_and_points_behind_the_batch_at_hand():
    feed = Feed(numbered(10), 4, seed=3)
    next(feed)
    assert feed.state() == {"epoch": 0, "position": 4, "step": 1, "seed": 3, "shuffle": 1, "samples": 10}
    next(feed), next(feed)
    assert feed.state() == {"epoch": 1, "position": 0, "step": 3, "seed": 3, "shuffle": 1, "samples": 10}


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (
            {"seed": 2},
            SettingError,
            "train.seed is 1, the checkpoint was written with 2: the order of the samples would be another; "
            "accepted: the same value",
        ),
        (
            {"shuffle": 0},
            SettingError,
            "data.shuffle is 1, the checkpoint was written with 0: the order of the samples would be another; "
            "accepted: the same value",
        ),
        (
            {"samples": 11},
            DataError,
            "the data has 10 samples, the checkpoint was written with 11; accepted: the same data",
        ),
        (
            {"position": 10},
            DataError,
            "the position in the data is {'epoch': 0, 'position': 10, 'step': 0, 'seed': 1, 'shuffle': 1, "
            "'samples': 10}; accepted: within an epoch of 10 samples",
        ),
        (
            {"rank": 0},
            DataError,
            "the position in the data has the fields ['epoch', 'position', 'rank', 'samples', 'seed', 'shuffle', "
            "'step']; accepted: ['epoch', 'position', 'samples', 'seed', 'shuffle', 'step']",
        ),
    ],
)
def test_state_that_cannot_be_applied_is_refused_and_changes_nothing(change, error, sentence):
    feed = Feed(numbered(10), 4)
    before = feed.state()
    with pytest.raises(error) as problem:
        feed.restore(before | change)
    assert str(problem.value) == sentence
    assert feed.state() == before


def test_workers_that_would_never_have_work_are_refused():
    refuse_idle_workers(4, 4, None)
    with pytest.raises(SettingError) as problem:
        refuse_idle_workers(5, 4, 100)
    assert str(problem.value) == (
        "strategy.workers is 5, more than the 4 samples of a step (data.batch_size); accepted: up to 4 workers, "
        "or a batch_size of at least 5"
    )
    with pytest.raises(SettingError) as problem:
        refuse_idle_workers(5, 64, 3)
    assert str(problem.value) == (
        "strategy.workers is 5, more than the 3 samples of the training data; accepted: up to 3 workers"
    )


def test_batch_size_below_1_is_refused():
    with pytest.raises(SettingError, match=r"^data.batch_size is 0; accepted: 1 or more$"):
        Feed(numbered(3), 0)


@settings(max_examples=20)
@given(st.integers(0, 2**40), st.integers(0, 10**6))
def test_any_seed_and_epoch_give_a_permutation(seed, number):
    assert sorted(epoch_order(40, seed, number, True).tolist()) == list(range(40))


@given(SIZES, BATCHES, WORLDS, st.booleans())
def test_every_sample_of_a_batch_has_its_number_in_the_data(samples, batch, world, shuffle):
    for feed in feeds(samples, batch, world, shuffle=shuffle):
        for _ in range(2 * (feed.steps_per_epoch or 1)):
            given_out = next(feed)
            assert [feed.number(place) for place in range(given_out.count)] == given_out.targets.tolist()
