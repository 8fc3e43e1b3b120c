"""The all-reduce exchange, and the collectives beside it, among real processes."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from exchange._ranks import bulletin
from volary.codec import ROOM as CODECS
from volary.comm.futex import why_not
from volary.errors import PeerLost, SettingError
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._base import Exchange, Shape
from volary.exchange._buckets import Bucket, Plan
from volary.exchange._collectives import add_up, gather, take_from_first

ROUTES = ["torch", pytest.param("shared", marks=pytest.mark.skipif(bool(why_not()), reason=why_not()))]


def exchange_of(rank: int, world_size: int, route: str, buckets: int = 2) -> tuple[Exchange, list[Bucket]]:
    """An exchange of buckets of 1000 values and one extra."""
    plans = [Plan([("p", nn.Parameter(torch.zeros(1000)))], 1, torch.float32, torch.device("cpu"))] * buckets
    settings = EXCHANGES.load("allreduce")(route=route)
    exchange = settings.build(CODECS.load("none")(), bulletin(rank, world_size), [plan.shape for plan in plans])
    memory = zip(plans, exchange.memory, strict=True)
    return exchange, [Bucket(index, plan, one, private=False) for index, (plan, one) in enumerate(memory)]


def agreed(exchange: Exchange) -> list[float]:
    return [memory.agreed.unique().item() for memory in exchange.memory]


def push_and_pull(rank: int, world_size: int, route: str) -> tuple[list[list[float]], int, int]:
    exchange, buckets = exchange_of(rank, world_size, route)
    seen = []
    for turn in range(3):
        for bucket, value in zip(buckets, (rank + 1.0, 10.0 * rank * turn), strict=True):
            bucket.contribution.fill_(value)
            exchange.push(bucket)
        for bucket in buckets:
            exchange.pull(bucket)
        seen.append(agreed(exchange))
    return seen, exchange.sent_bytes, exchange.received_bytes


@pytest.mark.parametrize("route", ROUTES)
def test_what_is_pulled_is_the_sum_of_what_all_pushed_and_bytes_on_the_wire_are_counted(workers, route):
    # by torch, of 2 buckets of 1001 values, each rank sends two thirds twice: a ring
    sent = 3 * 2 * 5338 if route == "torch" else 0
    assert workers(3, push_and_pull, route) == [([[6.0, 0.0], [6.0, 30.0], [6.0, 60.0]], sent, sent)] * 3


def choose(rank: int, world_size: int) -> list[str]:
    settings, codec = EXCHANGES.load("allreduce"), CODECS.load("none")()
    said = [exchange_of(rank, world_size, "auto")[0].route]
    too_much = [Shape(2**50, torch.float32, torch.device("cpu"))]
    try:
        settings(route="shared").build(codec, bulletin(rank, world_size, life=1), too_much)
    except SettingError as error:
        said.append(str(error))
    return said


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_auto_takes_shared_memory_on_one_machine_and_a_route_that_cannot_be_is_refused_on_all_ranks(workers):
    for auto, refused in workers(2, choose):
        assert auto == "shared memory, since all 2 workers are on this machine"
        assert refused.startswith("exchange.route is 'shared', but shared memory cannot be used: ")
        assert refused.endswith("accepted: auto, torch")


def lose_a_peer(rank: int, world_size: int) -> str:
    exchange, (bucket, *_) = exchange_of(rank, world_size, "torch", buckets=1)
    add_up(torch.zeros(1))  # the connections stand
    if rank == 1:
        os._exit(0)
    with pytest.raises(PeerLost) as lost:
        exchange.push(bucket)
        exchange.pull(bucket)
    raise lost.value


def test_a_peer_that_goes_is_a_peer_lost_in_one_line(workers):
    with pytest.raises(Exception, match=r"the exchange broke: |ended with 0") as ended:
        workers(2, lose_a_peer)
    assert "\n" not in str(ended.value) or "ended with" in str(ended.value)


def odd_tensors() -> list[torch.Tensor]:
    pictures = torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last)
    kinds = [torch.zeros(3, dtype=kind) for kind in (torch.bool, torch.int16, torch.bfloat16, torch.complex64)]
    return [torch.zeros(()), torch.zeros(3, 4).t(), pictures, torch.zeros(6)[::2], torch.zeros(0), *kinds]


def hand_out(rank: int, world_size: int) -> tuple[list[list[complex]], list[list[int]]]:
    tensors = odd_tensors()
    for tensor in tensors:
        if rank == 0:
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
        take_from_first(tensor)
    gathered = gather(torch.tensor([rank, 7]), world_size)
    return [tensor.to(torch.complex64).flatten().tolist() for tensor in tensors], gathered.tolist()


def test_tensors_of_any_type_and_layout_are_handed_out_and_gathered(workers):
    first, second = workers(2, hand_out)
    assert first == second
    assert first[0][2] == [*range(24)]
    assert first[1] == [[0, 7], [1, 7]]
