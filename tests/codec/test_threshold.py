"""The threshold alone: a value beyond it travels as the threshold, all others wait."""

import pytest
import torch

from codec._values import decoded, encoded, memory_of, values_of
from volary.codec.threshold import Threshold
from volary.errors import SettingError

BLOCK = Threshold.block


def sent(codec, values):
    return decoded(codec, encoded(codec, values), values.shape)


def test_values_beyond_the_threshold_travel_as_the_threshold():
    values = torch.tensor([[0.7, -0.7, 0.5, -0.5, 0.2, 0.0, 90.0, -1e-40]])
    expected = torch.tensor([[0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]])
    assert torch.equal(sent(Threshold(threshold=0.5), values), expected)


def test_what_is_kept_travels_once_it_has_grown():
    codec, left, steps = Threshold(threshold=1.0), torch.zeros(1, 40), []
    for _ in range(9):
        left += 0.3
        frame = encoded(codec, left)
        steps.append(decoded(codec, frame, left.shape)[0, 0].item())
        codec.add(frame, left, -1)
    assert steps == [0, 0, 0, 1, 0, 0, 1, 0, 0]
    torch.testing.assert_close(left, torch.full_like(left, 9 * 0.3 - 2))


def test_each_block_has_its_own_threshold_where_none_is_set():
    values = values_of("normal", (1, 2 * BLOCK + 100), seed=0)
    values[:, BLOCK:] *= 1e-6
    for part in values.split(BLOCK, 1):
        expected = 0.9 * part.square().mean().sqrt()
        got = sent(Threshold(), part)
        torch.testing.assert_close(got, expected * part.sign() * (part.abs() > expected))


@pytest.mark.parametrize("kind", ["normal", "sparse", "equal", "one sign", "all powers"])
def test_of_any_values_some_travel_so_that_less_is_left(kind):
    values = values_of(kind, (1, 3 * BLOCK), seed=1)
    left = (values - sent(Threshold(), values)).double()
    for part, rest in zip(values.double().split(BLOCK, 1), left.split(BLOCK, 1), strict=True):
        assert rest.norm() < part.norm()
        if kind == "normal":
            assert rest.norm() < 0.62 * part.norm()


def test_a_value_takes_two_bits_and_a_block_four_bytes():
    assert Threshold().frame_bytes(1, 10 * BLOCK) == 10 * (BLOCK // 4 + 4)
    assert [Threshold().frame_bytes(1, n) for n in (0, 1, 16, 17)] == [0, 8, 8, 12]


def test_the_largest_values_there_are_do_not_count_as_infinite():
    values = torch.full((1, BLOCK), torch.finfo(torch.float32).max)
    assert Threshold().encode(values, torch.empty(260, dtype=torch.uint8), memory_of(Threshold(), values))


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1e40])
def test_a_threshold_that_no_value_could_be_told_by_is_refused(threshold):
    with pytest.raises(SettingError, match="accepted: auto, or from 1e-30 to 1e30"):
        Threshold(threshold=threshold)
