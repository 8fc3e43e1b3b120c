"""Top-k alone: which values travel, and how many while it warms up."""

import pytest
import torch

from codec._values import decoded, encoded, values_of, without_numba
from volary.codec.topk import TopK
from volary.errors import SettingError

NORMAL = values_of("normal", (1, 2 * TopK.block + 500), seed=0)


def sent(codec, values):
    return decoded(codec, encoded(codec, values), values.shape)


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.3, 1.0])
def test_the_largest_of_each_block_travel_exactly_and_no_others(ratio):
    codec = TopK(ratio=ratio)
    for part, got in zip(NORMAL.split(codec.block, 1), sent(codec, NORMAL).split(codec.block, 1), strict=True):
        count = max(1, round(ratio * part.numel()))
        smallest = part.abs().view(-1).topk(count).values[-1]
        assert torch.equal(got, torch.where(part.abs() >= smallest, part, 0.0))


def test_blocks_of_other_magnitude_choose_as_well():
    values = NORMAL.clone()
    values[:, TopK.block : 2 * TopK.block] *= 1e-20
    got = sent(TopK(), values)
    assert [part.count_nonzero().item() for part in got.split(TopK.block, 1)] == [164, 164, 5]
    for part, chosen in zip(values.split(TopK.block, 1), got.split(TopK.block, 1), strict=True):
        assert chosen[chosen != 0].abs().min() >= part[chosen == 0].abs().max()


@pytest.mark.parametrize("larger", [0, 3, 50])
def test_of_equal_magnitudes_the_first_travel(larger):
    values = torch.ones(1, 1000)
    values[0, ::2] = -1.0
    values[0, 999 - larger : 999] = 5.0
    got = sent(TopK(ratio=0.05), values)
    expected = values.clone()
    expected[0, 50 - larger : 999 - larger] = 0.0
    expected[0, 999] = 0.0
    assert torch.equal(got, expected)
    with without_numba():
        assert torch.equal(sent(TopK(ratio=0.05), values), expected)


def test_of_each_block_one_value_travels_at_least():
    values = torch.tensor([[0.0, -3.0, 2.0]])
    assert torch.equal(sent(TopK(ratio=1e-6), values), torch.tensor([[0.0, -3.0, 0.0]]))


def test_a_value_that_travels_takes_six_bytes():
    assert TopK(ratio=0.01).frame_bytes(1, 100 * TopK.block) == 100 * 164 * 6
    assert TopK(ratio=0.01).frame_bytes(1, 300) == 3 * 6 + 2, "the values are aligned"


def test_while_it_warms_up_the_ratio_falls_by_four_in_stages_of_equal_length():
    codec = TopK(ratio=0.01, momentum=0.9, warm_up_samples=300)
    ratios = [codec.at(samples).ratio for samples in (0, 99, 100, 199, 200, 299, 300, 10**9)]
    assert ratios == [0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.01, 0.01]
    assert codec.at(0) == codec.at(99), "the same codec for a whole stage"
    assert codec.at(0).momentum == 0.9 and codec.at(300) is codec


def test_without_a_warm_up_and_with_a_large_ratio_it_stays_the_same():
    assert TopK().at(0) == TopK()
    assert TopK(ratio=0.5, warm_up_samples=10).at(3).ratio == 0.5


def test_of_two_bits_the_same_values_travel_as_their_sign_and_one_of_two_means():
    got, exact = sent(TopK(bits=2), NORMAL), sent(TopK(), NORMAL)
    for part, kept in zip(got.split(TopK.block, 1), exact.split(TopK.block, 1), strict=True):
        assert torch.equal(part.sign(), kept.sign())
        magnitudes = kept[kept != 0].abs()
        large = magnitudes > magnitudes.mean()
        means = torch.where(large, magnitudes[large].mean(), magnitudes[~large].mean())
        torch.testing.assert_close(part[kept != 0].abs(), means)


def test_two_bits_take_two_and_a_quarter_bytes_a_value_that_travels_and_eight_a_block():
    assert TopK(ratio=1 / 64, bits=2).frame_bytes(1, 100 * TopK.block) == 100 * (256 * 2 + 8 + 256 // 4)
    assert TopK(bits=2).frame_bytes(1, 0) == 0


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"ratio": 0.0}, "ratio is 0.0; accepted: above 0, up to 1"),
        ({"ratio": 1.5}, "ratio is 1.5; accepted: above 0, up to 1"),
        ({"momentum": 1.0}, "momentum is 1.0; accepted: from 0 to below 1"),
        ({"warm_up_samples": -1}, "warm_up_samples is -1; accepted: 0 or more"),
        ({"decay": 0.0}, "decay is 0.0; accepted: above 0, up to 1"),
        ({"decay": 0.9, "momentum": 0.5}, "momentum is 0.5 and decay is 0.9, of which each .*; accepted: one of them"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, sentence):
    with pytest.raises(SettingError, match=sentence):
        TopK(**setting)
