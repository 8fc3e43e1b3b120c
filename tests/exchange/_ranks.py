"""What the exchange needs of a rank, over the group that a test's workers have joined."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.distributed_c10d import _get_default_store

from volary.comm.routes._base import Shape
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._base import Exchange, Use
from volary.exchange._buckets import Buckets
from volary.exchange._error_memory import ErrorMemory
from volary.exchange._line import Parcel
from volary.exchange._plan import Plan
from volary.train.bulletin import Bulletin

VALUES = 1000


def shape(numel: int) -> Shape:
    return Shape(numel, torch.float32, torch.device("cpu"))


def bulletin(rank: int, world_size: int, life: int = 0) -> Bulletin:
    """In the group's store; another life sees nothing of this one."""
    return Bulletin(_get_default_store(), rank, world_size, life)


class Turns:
    """A synchronous exchange of parameters of 1000 values, a bucket each, and 3 values of votes; what is heard."""

    def __init__(self, rank: int, world_size: int, route: str, buckets: int = 2, *, votes_first: bool = False) -> None:
        plans = [
            Plan([(f"p{number}", nn.Parameter(torch.zeros(VALUES)))], torch.float32, torch.device("cpu"))
            for number in range(buckets)
        ]
        board = bulletin(rank, world_size)
        ground = EXCHANGES.load("allreduce")(route=route).ground(board)
        self.exchange: Exchange = ground.build(board, plans, shape(3), ErrorMemory(plans))
        *memory, self.votes = self.exchange.memory
        self.buckets = Buckets(
            plans,
            memory,
            [],
            chunk_mb=25,
            private=False,
            passes=1,
            ready=lambda chunk: self.exchange.push(chunk.parcel),
            weight=lambda: 1.0,
        )
        self.heard: list[list[float]] = []
        self.sums: list[list[float]] = [[] for _ in plans]
        use = Use(
            chunks=self.buckets.chunks,
            slots=self.buckets.slots,
            votes=Parcel(buckets, 0, 3),
            votes_first=votes_first,
            heard=lambda: self.heard.append(self.votes.agreed.tolist()),
            apply=lambda chunk: self.sums[chunk.index].append(self.agreed(chunk.index)),
            travelled=lambda *_: None,
            applied=lambda *_: None,
        )
        self.exchange.start(use if self.exchange.overlaps else _all_at_once(use))

    def contribute(self, *values: float) -> None:
        """Each parameter's gradient is so much; the votes count the ranks."""
        for slot, value in zip(self.buckets.slots, values, strict=True):
            slot.parameter.grad = torch.full((VALUES,), value)
        assert self.buckets.close() == []
        self.votes.contribution.fill_(1.0)
        self.exchange.push(len(self.buckets.chunks))

    def agreed(self, number: int) -> float:
        """Of the values of a bucket, which are all the same."""
        return float(self.buckets.slots[number].agreed.unique())


def _all_at_once(use: Use) -> Use:
    return Use(**{**vars(use), "apply": None})
