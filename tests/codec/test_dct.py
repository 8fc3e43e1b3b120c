"""Cosine transforms alone: which waves travel, and how far edges and huge values go."""

import pytest
import torch

from codec._values import decoded, encoded, values_of, without_numba
from volary.codec.dct import Dct
from volary.errors import SettingError


def sent(codec, values):
    return decoded(codec, encoded(codec, values), values.shape)


def test_a_wave_of_each_tile_travels_alone_also_at_the_edges():
    rows, columns = torch.arange(100.0).unsqueeze(1), torch.arange(70.0)
    values = torch.cos(torch.pi / 64 * (rows % 64 + 0.5) * 3) * torch.cos(torch.pi / 64 * (columns % 64 + 0.5) * 5)
    codec = Dct(ratio=1e-6)
    got = sent(codec, values)
    torch.testing.assert_close(got[:64, :64], values[:64, :64], rtol=0, atol=1e-5)
    assert codec.frame_bytes(100, 70) == 4 * 8, "of each of four tiles one coefficient"
    left, whole = (values - got)[64:], values[64:]
    assert 0 < left.square().sum() < whole.square().sum(), "smaller tiles have waves of their own"


def test_with_all_coefficients_nothing_is_lost_but_rounding():
    values = values_of("normal", (70, 130), seed=0)
    torch.testing.assert_close(sent(Dct(ratio=1.0), values), values, rtol=0, atol=2e-5)


def test_huge_values_stay_finite_and_what_they_lose_waits():
    values = torch.full((64, 64), torch.finfo(torch.float32).max)
    for ratio in (1 / 128, 1.0):
        got = sent(Dct(ratio=ratio), values)
        assert got.isfinite().all() and (got > 0).all()
        with without_numba():
            assert torch.equal(sent(Dct(ratio=ratio), values), got)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"ratio": 0.0}, "ratio is 0.0; accepted: above 0, up to 1"),
        ({"decay": 1.5}, "decay is 1.5; accepted: above 0, up to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, sentence):
    with pytest.raises(SettingError, match=sentence):
        Dct(**setting)
