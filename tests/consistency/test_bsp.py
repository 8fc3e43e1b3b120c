"""Bulk synchronous: nothing is read before everybody's contribution is in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exchange._ranks import bulletin
from volary.codec import ROOM as CODECS
from volary.consistency import ROOM
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._buckets import Bucket, Plan


def wait_for_all(rank: int, world_size: int) -> tuple[list[float], int]:
    plans = [Plan([("p", nn.Parameter(torch.zeros(1000)))], 1, torch.float32, torch.device("cpu"))] * 2
    told = bulletin(rank, world_size)
    exchange = EXCHANGES.load("allreduce")().build(CODECS.load("none")(), told, [plan.shape for plan in plans])
    pairs = enumerate(zip(plans, exchange.memory, strict=True))
    buckets = [Bucket(index, plan, memory, private=False) for index, (plan, memory) in pairs]
    model = ROOM.load("bsp")().build(exchange)
    for _ in range(2):
        for bucket, value in zip(buckets, (rank + 1.0, 10.0), strict=True):
            bucket.contribution.fill_(value)
            model.gradient_ready(bucket)
        model.before_update(buckets)
        model.step()
    return [memory.agreed.unique().item() for memory in exchange.memory], model.clock


def test_every_bucket_holds_every_worker_s_contribution_before_the_update(workers):
    assert workers(3, wait_for_all) == [([6.0, 30.0], 2)] * 3


@pytest.mark.parametrize("name", ["ssp", "async", "gossip"])
def test_a_model_that_is_known_and_not_built_says_so(name):
    with pytest.raises(Exception, match=name):
        ROOM.load(name)
