"""Replicas that should be equal and are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from train._training import OVERLAPPED, made, session, started
from volary.errors import RanksDiffer
from volary.train.loop import train
from volary.train.state.replicas import BLOCK, compare_replicas, fingerprint


def flip_bit(parameter: torch.Tensor, bit: int) -> None:
    """As a cosmic ray would: no gradient, no rounding, one bit of the first value."""
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[parameter.element_size()]
    raw = parameter.detach().view(kind).view(-1)
    raw[0] ^= torch.tensor(1, dtype=torch.int64).bitwise_left_shift(bit).to(kind)


def look_for_a_flip(rank: int, world_size: int) -> list[str]:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).double(), nn.Linear(2, 1).bfloat16())
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    compare_replicas(module, 6, joined())
    said = []
    for odd, name, bit in ((1, "0.weight", 0), (world_size - 1, "1.bias", 63), (0, "2.weight", 15)):
        if rank == odd:
            flip_bit(module.get_parameter(name), bit)
        with pytest.raises(RanksDiffer) as found:
            compare_replicas(module, 7, joined())
        said.append(str(found.value))
        if rank == odd:
            flip_bit(module.get_parameter(name), bit)
        compare_replicas(module, 8, joined())
    return said


def test_a_flipped_bit_is_found_and_rank_and_parameter_are_named(workers):
    for said in workers(3, look_for_a_flip):
        assert said == [
            "replicas differ at step 7: rank 1 in parameter 0.weight; they should be equal",
            "replicas differ at step 7: rank 2 in parameter 1.bias; they should be equal",
            "replicas differ at step 7: rank 0 in parameter 2.weight; they should be equal",
        ]


def drift(rank: int, world_size: int, strategy: dict[str, Any]) -> tuple[str, int]:
    one = session("Exact", train={"steps": 9, "compare_replicas": "4 steps"}, strategy=strategy)
    it = made(rank, world_size, one)
    with started(it), pytest.raises(RanksDiffer) as found:
        if rank == 1:
            flip_bit(next(it.flow.module.parameters()), 20)
        train(it)
    return str(found.value), it.recorder.step


@pytest.mark.parametrize("strategy", [{}, OVERLAPPED], ids=["auto", "torch"])
def test_the_loop_compares_replicas_as_often_as_it_is_told(workers, strategy):
    said = (
        "replicas differ at step 4: parameter layers.0.weight is another on rank 0 than on rank 1; they should be equal"
    )
    assert workers(2, drift, strategy) == [(said, 4)] * 2


def test_a_bit_counts_in_whichever_block_of_a_large_parameter_it_lies():
    module = nn.Linear(BLOCK + 2, 2, bias=False)
    whole = fingerprint(module)
    for place in (0, BLOCK, 2 * BLOCK + 3):
        module.weight.detach().view(-1).view(torch.int32)[place] ^= 1
        assert not torch.equal(fingerprint(module), whole), place
        module.weight.detach().view(-1).view(torch.int32)[place] ^= 1
    assert torch.equal(fingerprint(module), whole)


def test_every_single_bit_counts():
    module = nn.Linear(2, 1, bias=False)
    whole = fingerprint(module)
    for bit in range(32):
        flip_bit(module.weight, bit)
        assert not torch.equal(fingerprint(module), whole), bit
        flip_bit(module.weight, bit)
    assert torch.equal(fingerprint(module), whole)


def swapped(values: torch.Tensor, one: int, other: int) -> None:
    values[[one, other]] = values[[other, one]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_values_that_have_changed_places_are_found(dtype):
    module = nn.Module()
    first = torch.arange(1, BLOCK + 9, dtype=torch.float32) % 13 + 1
    first[5], first[6] = 3.0, -3.0  # but for the sign's bit they are equal
    module.weight = nn.Parameter(first.to(dtype), requires_grad=False)
    raw = module.weight.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    whole = fingerprint(module)
    for one, other in ((5, 6), (0, 1), (3, BLOCK + 3), (2, BLOCK + 7)):
        assert raw[one] != raw[other]
        swapped(raw, one, other)
        assert not torch.equal(fingerprint(module), whole), (one, other)
        swapped(raw, one, other)
    raw[:4] = raw[:4].roll(1)
    assert not torch.equal(fingerprint(module), whole)
    raw[:4] = raw[:4].roll(-1)
    assert torch.equal(fingerprint(module), whole)
