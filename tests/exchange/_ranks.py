"""A rank of the exchange, over the group that a test's workers have joined."""

from __future__ import annotations

import torch
from torch import nn

from _workers import joined
from volary.comm.sums.route import BufferShape
from volary.exchange import ROOM as EXCHANGES
from volary.exchange._base import KeeperCallbacks, ReplicatedKeeper
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.overlap.comm_thread import Parcel
from volary.exchange.representations.exact import EXACT

VALUES = 1000


def shape(numel: int) -> BufferShape:
    return BufferShape(numel, torch.float32, torch.device("cpu"))


class Turns:
    """A synchronous exchange of parameters of 1000 values, a bucket each, and 3 values of votes; what is heard."""

    def __init__(self, route: str, buckets: int = 2, *, votes_first: bool = False) -> None:
        plans = [
            BucketPlan([(f"p{number}", nn.Parameter(torch.zeros(VALUES)))], torch.float32, torch.device("cpu"), EXACT)
            for number in range(buckets)
        ]
        group = joined()
        comm_setup = EXCHANGES.load("allreduce")(route=route).comm_setup(group)
        self.exchange: ReplicatedKeeper = comm_setup.build(group, plans, shape(3))
        *memory, self.votes = self.exchange.memory
        self.buckets = Gradients(
            plans,
            memory,
            [],
            chunk_mb=25,
            passes=1,
            ready=lambda chunk: self.exchange.push(chunk.index),
            weight=lambda: 1.0,
        )
        self.version = 0
        self.heard: list[list[float]] = []
        self.sums: list[list[float]] = [[] for _ in plans]
        use = KeeperCallbacks(
            chunks=self.buckets.chunks,
            slots=self.buckets.slots,
            votes=Parcel(buckets, 0, 3),
            votes_first=votes_first,
            voted=lambda: self.heard.append(self.votes.agreed.tolist()),
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
        self.exchange.vote()

    def release(self) -> None:
        """Backward is over."""
        self.version += 1
        self.exchange.release(self.version)

    def agreed(self, number: int) -> float:
        """The sum in a bucket: that of its values, which are all the same."""
        return float(self.buckets.slots[number].agreed.unique())


def _all_at_once(use: KeeperCallbacks) -> KeeperCallbacks:
    return KeeperCallbacks(**{**vars(use), "apply": None})
