"""Carries factors: each rank's rows of a layer to all others, or to a few that change from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.links import Links
from volary.comm.routes._base import Memory
from volary.errors import SettingError
from volary.exchange._payload import INDEX, Payload
from volary.exchange._way import Factors

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.links import Transfer
    from volary.comm.routes._base import Arrival, Bulletin
    from volary.exchange._plan import Plan

FIRST_TAG = 2**24  # below are those of sums
IN_FLIGHT = 4
UNUSED = -1  # in place of the number of rows: backward did not reach the layer


@dataclass(frozen=True)
class FactorMemory(Memory):
    """Of a bucket whose gradients are formed, chunk by chunk, from a payload; only its head is written at once."""

    payload: Payload


class FactorSums:
    """Gives each rank what the sum of a bucket's gradients can be formed from; see `volary.comm.routes._base.Route`.

    plans: one layer's weight, or weight and bias, each, with how many others a rank sends to in a step; with each step
    to others, so that all pairs meet in time. What is heard then counts for all: it is scaled to the whole world, and
    what ranks form differs, though not its mean over all ranks.
    """

    def __init__(self, bulletin: Bulletin, plans: Sequence[Plan]) -> None:
        self.memory = [_memory(plan) for plan in plans]
        self.in_flight = IN_FLIGHT
        self._plans, self._links = plans, Links(bulletin.rank, bulletin.world_size)
        self._reach = [_reach(plan, bulletin.world_size) for plan in plans]
        self._steps = 0
        self._turns = [range(0)] * len(plans)  # of this step, counted on over all steps: each is a neighbour
        self._coming: dict[int, dict[int, tuple[Tensor, Transfer]]] = {}  # by buffer and source: how many rows

    @property
    def sent_bytes(self) -> int:
        """Payload that this rank has sent."""
        return self._links.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Payload that this rank has received, or is about to."""
        return self._links.received_bytes

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Send what this rank has of the buffer's layer, all of it at once; each buffer has its turn once a step."""
        if buffer not in self._coming:
            self._begin_step()
        links = self._links
        own = self.memory[buffer].payload.leave()
        count = torch.tensor([UNUSED if own is None else own.shape[0]])
        sends = []
        for to in self._away(buffer, 1):
            sends.append(links.send(count, to, _tag(buffer)))
            if own is not None and own.numel():
                sends.append(links.send(own, to, _tag(buffer) + 1))
        return _Underway(self, buffer, count, own, sends)

    def finish(self, sum_: _Underway) -> None:
        """Take everybody's rows. Raises PeerLost if a peer went away."""
        links, memory = self._links, self.memory[sum_.buffer]
        counts = {links.rank: int(sum_.count)}
        for source, (count, transfer) in self._coming.pop(sum_.buffer).items():
            transfer.wait()
            counts[source] = int(count)
        ranks = sorted(counts)  # all ranks add in the same order
        places = dict(zip(ranks, memory.payload.room([max(0, counts[rank]) for rank in ranks]), strict=True))
        own = places.pop(links.rank)
        coming = [links.receive(at, source, _tag(sum_.buffer) + 1) for source, at in places.items() if at.numel()]
        if sum_.own is not None:
            own.copy_(sum_.own)
        for transfer in (*coming, *sum_.sends):
            transfer.wait()
        memory.payload.landed(links.world_size / len(counts))
        self._write_users(sum_.buffer, list(counts.values()))

    def _begin_step(self) -> None:
        """Await how many rows come, of all layers: before they do."""
        for buffer, reach in enumerate(self._reach):
            self._turns[buffer] = range(self._steps * reach, (self._steps + 1) * reach)
            coming = self._coming[buffer] = {}
            for source in self._away(buffer, -1):
                count = torch.empty(1, dtype=torch.int64)
                coming[source] = count, self._links.receive(count, source, _tag(buffer))
        self._steps += 1

    def _away(self, buffer: int, direction: int) -> list[int]:
        """The ranks that this one sends to (direction 1), or hears (-1), in this step."""
        links = self._links
        return [
            (links.rank + direction * (1 + turn % (links.world_size - 1))) % links.world_size
            for turn in self._turns[buffer]
        ]

    def _write_users(self, buffer: int, counts: Sequence[int]) -> None:
        """How many ranks had a gradient, into the bucket's head; ranks not heard count as if they had."""
        without = counts.count(UNUSED)
        users = 0 if without == len(counts) else self._links.world_size - without
        for number, (_, parameter) in enumerate(self._plans[buffer].parameters):
            self.memory[buffer].agreed[number] = users if parameter.requires_grad else 0


@dataclass(frozen=True)
class _Underway:
    """A layer's rows on their way; own and count: what is sent, kept until it has left."""

    sums: FactorSums
    buffer: int
    count: Tensor
    own: Tensor | None
    sends: list[Transfer]

    def wait(self) -> None:
        self.sums.finish(self)


def _memory(plan: Plan) -> FactorMemory:
    if plan.dtype not in INDEX:
        raise SettingError(
            f"{plan.parameters[0][0]} is {str(plan.dtype).removeprefix('torch.')} and would travel as factors; "
            "accepted: float32, float64"
        )
    # pages that nobody writes cost nothing: where chunks are formed elsewhere, all but the head
    flat = torch.zeros(plan.shape.numel, dtype=plan.dtype, device=plan.device)
    return FactorMemory(flat, flat, Payload(plan.dtype, plan.device))


def _reach(plan: Plan, world_size: int) -> int:
    assert isinstance(plan.way, Factors)
    return world_size - 1 if plan.way.neighbours is None else min(plan.way.neighbours, world_size - 1)


def _tag(buffer: int) -> int:
    return FIRST_TAG + 2 * buffer
