"""Epochs: samples and batches are counted alike, wherever an epoch's smaller last batch comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from volary.sharding.epochs import Epochs

epochs = some.builds(Epochs, some.integers(1, 50), some.integers(1, 60))


@given(epochs, some.integers(0, 200))
def test_steps_and_samples_are_each_other_s_inverse_and_a_step_ends_where_its_batch_does(one, steps):
    batches = [
        range(start, min(start + one.batch_size, one.samples)) for start in range(0, one.samples, one.batch_size)
    ]
    assert len(batches) == one.steps
    learnt = [batch for _ in range(steps // one.steps + 1) for batch in batches][:steps]
    assert one.samples_of(steps) == sum(map(len, learnt))
    assert one.steps_of(one.samples_of(steps)) == steps
    assert one.end_of(steps) == (steps // one.steps, steps % one.steps * one.batch_size)


@given(epochs, some.data())
def test_a_sample_s_batch_has_it_and_begins_where_the_one_before_ends(one, data):
    place = data.draw(some.integers(0, one.samples - 1))
    batch = one.batch_at(place)
    assert place in batch and 0 < len(batch) <= one.batch_size
    assert batch.start == 0 or one.batch_at(batch.start - 1).stop == batch.start
