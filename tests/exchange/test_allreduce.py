"""The all-reduce exchange, and the collectives beside it, among real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from _workers import WorkerError
from volary.codec import ROOM as CODECS
from volary.errors import PeerLost
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._buckets import Bucket
from volary.exchange._collectives import add_up, gather, take_from_first


def bucket_of(value: float, numel: int = 1000) -> Bucket:
    bucket = Bucket(0, [("p", nn.Parameter(torch.zeros(numel)))], 1, torch.zeros(0))
    bucket.flat.fill_(value)
    return bucket


def push_and_pull(rank: int, world_size: int) -> tuple[list[float], int, int]:
    exchange = EXCHANGES.load("allreduce")().build(CODECS.load("none")(), world_size)
    buckets = [bucket_of(rank + 1.0), bucket_of(10.0 * rank)]
    for bucket in buckets:
        exchange.push(bucket)
    for bucket in buckets:
        exchange.pull(bucket)
    return [bucket.flat.unique().item() for bucket in buckets], exchange.sent_bytes, exchange.received_bytes


def test_what_is_pulled_is_the_sum_of_what_all_pushed_and_bytes_are_counted(workers):
    # of 2 buckets of 1001 values, each rank sends two thirds twice: a ring
    assert workers(3, push_and_pull) == [([6.0, 30.0], 2 * 5338, 2 * 5338)] * 3


def lose_a_peer(rank: int, world_size: int) -> str:
    exchange = EXCHANGES.load("allreduce")().build(CODECS.load("none")(), world_size)
    add_up(torch.zeros(1))  # the connections stand
    if rank == 1:
        os._exit(0)
    bucket = bucket_of(1.0)
    try:
        exchange.push(bucket)
        exchange.pull(bucket)
    except PeerLost as lost:
        Path("said").write_text(str(lost))
    return "survived"


def test_a_peer_that_goes_is_a_peer_lost_in_one_line(workers):
    with pytest.raises(WorkerError, match="rank 1 of 2 ended with 0"):
        workers(2, lose_a_peer)
    said = (workers.folder / "1" / "said").read_text()
    assert said.startswith("the exchange broke: ")
    assert "\n" not in said


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
