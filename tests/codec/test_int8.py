"""Eight bits a value, rounded at random."""

from __future__ import annotations

import torch

from codec._values import decoded, encoded, memory_of, values_of
from volary.codec.int8 import Int8

CODEC = Int8()


def sent_of(values, frames):
    """(frames, values): what so many frames of the same values say."""
    memory = memory_of(CODEC, values)
    return torch.cat([decoded(CODEC, encoded(CODEC, values, memory), values.shape) for _ in range(frames)])


def test_a_value_is_off_by_less_than_a_step_of_its_block():
    values = torch.cat([values_of("normal", (1, 512), seed=0), 1000 * values_of("normal", (1, 512), seed=1)], dim=1)
    steps = values.view(2, 512).abs().amax(1, keepdim=True) / 127
    error = (sent_of(values, 1) - values).view(2, 512).abs()
    assert (error < 1.001 * steps).all()


def test_on_average_nothing_is_lost():
    frames = 2000
    values = values_of("normal", (1, 512), seed=2)
    step = values.abs().max() / 127
    off = sent_of(values, frames).mean(0) - values[0]
    assert off.abs().max() < 5 * step * (0.25 / frames) ** 0.5, "five times the standard deviation of a mean"
    assert off.mean().abs() < 5 * step * (0.25 / frames / 512) ** 0.5


def test_the_largest_value_and_zero_travel_as_they_are():
    values = torch.tensor([[0.0, -127.0, 0.0, 64.0, 127.0]])
    assert torch.equal(sent_of(values, 50), values.expand(50, 5))


def test_equal_values_are_not_all_rounded_the_same_way():
    values = torch.full((1, 512), 0.5)
    values[0, 0] = 127.0
    sent = sent_of(values, 2)[:, 1:]
    assert set(sent.flatten().tolist()) == {0.0, 1.0}
    assert not torch.equal(sent[0], sent[1])


def test_random_numbers_go_on_after_the_last_that_fp32_can_count():
    values, memory = values_of("normal", (1, 512), seed=4), torch.tensor([2.0**24 - 1])
    encoded(CODEC, values, memory)
    assert memory.item() == 0
