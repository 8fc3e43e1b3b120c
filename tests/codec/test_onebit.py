"""One bit a value."""

from __future__ import annotations

import pytest
import torch

from codec._values import decoded, encoded, values_of
from volary.codec.none import FullPrecision
from volary.codec.onebit import OneBit
from volary.errors import SettingError


def test_a_value_becomes_the_mean_of_those_in_its_block_that_have_its_sign():
    values = torch.tensor([[1.0, -2.0, 3.0, -6.0, 0.0, -0.0]])
    assert decoded(OneBit(), encoded(OneBit(), values), values.shape).tolist() == [[1.0, -4.0, 1.0, -4.0, 1.0, 1.0]]


def test_means_are_of_a_block_and_not_of_others():
    values = torch.cat([torch.full((1, 1024), 2.0), torch.full((1, 10), -3.0)], dim=1)
    assert torch.equal(decoded(OneBit(), encoded(OneBit(), values), values.shape), values)


def test_a_block_keeps_its_sum():
    values = values_of("normal", (1, 1024), seed=3)
    sent = decoded(OneBit(), encoded(OneBit(), values), values.shape)
    torch.testing.assert_close(sent.double().sum(), values.double().sum(), rtol=1e-4, atol=1e-3)
    assert torch.equal(sent < 0, values < 0)


def test_a_frame_has_a_thirtieth_of_the_bytes():
    assert OneBit().frame_bytes(1, 2**20) <= 4 * 2**20 / 30


def test_the_run_begins_at_full_precision_for_as_many_samples_as_are_set():
    codec = OneBit(warm_up_samples=640)
    assert codec.at(0) == codec.at(639) == FullPrecision()
    assert codec.at(640) is codec
    with pytest.raises(SettingError, match=r"warm_up_samples is -1; accepted: 0 and above"):
        OneBit(warm_up_samples=-1)
