"""A third keeper, of tests alone: parameters sharded among the workers (ZeRO: Rajbhandari et al., SC 2020).

Made of what is public: the collectives, the buckets and the update rule, by slices. No setting takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from volary.comm.collectives import all_gather, reduce_scatter, share
from volary.comm.groups.group import Group
from volary.comm.topology.links import Links
from volary.comm.topology.topology import Topology
from volary.exchange._base import Keeper
from volary.exchange.compression.residual import ResidualState
from volary.exchange.gradients.bucket import ParameterGate
from volary.exchange.gradients.buckets import Buckets
from volary.run.database.traffic import Traffic
from volary.server.update_rule import SliceUpdate
from volary.sharding.ranges import Range
from volary.train.update.optimizer_rule import OptimizerRule
from volary.train.update.rule import SliceOptimizer


class By:
    """A `volary.train.update.optimizer_rule.Updating`. kind: of torch's optimisers, with these settings."""

    elementwise, clip_value = True, None

    def __init__(self, kind: type[Optimizer], **settings: Any) -> None:
        self._kind, self._settings = kind, settings

    def build(self, names: Sequence[str]) -> Any:
        return lambda tensors: self._kind(tensors, **self._settings)

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        one.step(1.0)


class ShardedKeeper(Keeper):
    """Of each parameter a worker keeps its share, and what the optimiser remembers of that; the rest is a copy.

    The sum of a share's gradients comes to its worker alone, which updates it; a copy is fetched when it is read.
    """

    def __init__(self, group: Group, buckets: Buckets, updating: By) -> None:
        self._buckets, self._links = buckets, Links(group)
        self._topology = Topology.of(range(group.size))
        shares = [share(slot.parameter.numel(), group.rank, group.size) for slot in buckets.slots]
        self._shares = shares
        self.rule = OptimizerRule(
            {
                number: {Range(slot.name, own.start, own.stop): flat(slot.parameter)[own]}
                for number, (slot, own) in enumerate(zip(buckets.slots, shares, strict=True))
            },
            updating,
        )
        self._pushed = set[int]()
        self._stale = dict[ParameterGate, Tensor]()  # what is to be fetched before it is read

    @property
    def sent_bytes(self) -> int:
        return self._links.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._links.received_bytes

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        sent, received = self.sent_bytes, self.received_bytes
        return (Traffic("none", "sharded", sent, received, sent + received),)

    def push(self, chunk: int) -> None:
        self._pushed.add(chunk)

    @torch.no_grad()
    def release(self, at_least: int) -> None:
        assert self._pushed == set(range(len(self._buckets.chunks))), "the contribution is complete"
        self._pushed.clear()
        for number, (slot, own) in enumerate(zip(self._buckets.slots, self._shares, strict=True)):
            reduce_scatter(self._links, slot.view, self._topology)
            kept, summed = flat(slot.parameter)[own], flat(slot.view)[own]
            self.rule.apply(number, [kept], SliceUpdate([summed]))
            self._stale[slot.gate] = slot.parameter.detach()

    def pull(self, gate: ParameterGate) -> None:
        if (copy := self._stale.pop(gate, None)) is not None:
            all_gather(self._links, copy, self._topology)

    def settle(self) -> None:
        """All that was pushed counts since `release`."""

    def state(self, *, copied: bool = True) -> ResidualState:
        return {}

    def restore(self, states: Sequence[ResidualState]) -> None:
        """Nothing is encoded, so nothing was left out."""

    def close(self) -> None:
        """Nothing runs beside."""


def flat(tensor: Tensor) -> Tensor:
    """A contiguous tensor of any shape as (numel,)."""
    return tensor.detach().view(-1)
