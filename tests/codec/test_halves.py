"""Values as floats of 16 bits: `fp16` and `bf16`."""

from __future__ import annotations

import pytest
import torch

from codec._values import decoded, encoded, values_of
from volary.codec.bf16 import Bf16
from volary.codec.fp16 import Fp16

KINDS = [(Fp16(), torch.float16), (Bf16(), torch.bfloat16)]
kinds = pytest.mark.parametrize(("codec", "dtype"), KINDS, ids=["fp16", "bf16"])


@kinds
@pytest.mark.parametrize("kind", ["normal", "denormal", "all powers"])
def test_values_are_rounded_to_nearest_and_saturate(codec, dtype, kind):
    values = values_of(kind, (1, 999), seed=0)
    largest = torch.finfo(dtype).max
    expected = values.clamp(-largest, largest).to(dtype).float()
    assert torch.equal(decoded(codec, encoded(codec, values), values.shape), expected)


@kinds
def test_what_is_too_large_arrives_as_the_largest_there_is(codec, dtype):
    values = torch.tensor([[torch.finfo(torch.float32).max, -1.0, torch.finfo(torch.float32).min]])
    largest = torch.finfo(dtype).max
    assert decoded(codec, encoded(codec, values), values.shape).tolist() == [[largest, -1.0, -largest]]


@kinds
def test_every_number_of_16_bits_is_added_as_what_it_is(codec, dtype):
    every = torch.arange(2**16).to(torch.uint16).view(dtype)
    every = every[torch.isfinite(every)].float().view(1, -1)
    out = torch.zeros(every.shape)
    codec.add(encoded(codec, every), out, -1)
    assert torch.equal(out, -every)
