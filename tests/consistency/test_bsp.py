"""Bulk synchronous: nothing is read before everybody's contribution is in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from volary.codec import ROOM as CODECS
from volary.consistency import ROOM
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._buckets import Bucket


def bucket_of(value: float) -> Bucket:
    bucket = Bucket(0, [("p", nn.Parameter(torch.zeros(1000)))], 1, torch.zeros(0))
    bucket.flat.fill_(value)
    return bucket


def wait_for_all(rank: int, world_size: int) -> tuple[list[float], int]:
    exchange = EXCHANGES.load("allreduce")().build(CODECS.load("none")(), world_size)
    model = ROOM.load("bsp")().build(exchange)
    for _ in range(2):
        buckets = [bucket_of(rank + 1.0), bucket_of(10.0)]
        for bucket in buckets:
            model.gradient_ready(bucket)
        model.before_update(buckets)
        model.step()
    return [bucket.flat.unique().item() for bucket in buckets], model.clock


def test_every_bucket_holds_every_worker_s_contribution_before_the_update(workers):
    assert workers(3, wait_for_all) == [([6.0, 30.0], 2)] * 3


@pytest.mark.parametrize("name", ["ssp", "async", "gossip"])
def test_a_model_that_is_known_and_not_built_says_so(name):
    with pytest.raises(Exception, match=name):
        ROOM.load(name)
