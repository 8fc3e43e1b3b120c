"""Carries factors: each rank's rows of a layer to all others, or to a few that change from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.sums.route import Memory
from volary.comm.topology.links import Links
from volary.errors import SettingError
from volary.exchange.gradients.factor_payload import INDEX, Payload
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.sums.route import Arrival
    from volary.comm.topology.links import Transfer
    from volary.exchange.gradients.plan import BucketPlan

FIRST_TAG = 2**24  # below are those of sums
IN_FLIGHT = 3  # more would share the wire, and the urgent one would come later
UNUSED = -1  # in place of the number of rows: backward did not reach the layer


@dataclass(frozen=True)
class FactorMemory(Memory):
    """Memory of a bucket that forms its gradients, chunk by chunk, from a payload; only its head is written at once."""

    payload: Payload


class FactorSums:
    """Gives each rank what the sum of a bucket's gradients can be formed from; see `volary.comm.sums.route.BufferSums`.

    plans: one layer's weight, or weight and bias, each. neighbours: of each, how many others a rank sends to in a step;
    None: all. With each step they are others, so that all pairs meet in time. What is heard then counts for all: it is
    scaled to the whole world, and what ranks form differs, though not its mean over all ranks.

    Data that nobody awaits yet waits itself, so as many rows are awaited ahead as came last time. What is more follows
    in a message of its own; what is fewer is filled up.
    """

    def __init__(self, group: Group, plans: Sequence[BucketPlan], neighbours: Sequence[int | None]) -> None:
        self.memory = [factor_memory(plan) for plan in plans]
        self.in_flight = IN_FLIGHT
        self._plans, self._links = plans, Links(group)
        others = group.size - 1
        self._reach = [others if some is None else min(some, others) for some in neighbours]
        self._steps = self._plain_bytes = 0
        self._coming: dict[int, _Coming] = {}  # by buffer
        self._sent: dict[tuple[int, int], int] = {}  # by buffer and rank: how many rows the last time
        self._arrived: dict[tuple[int, int], int] = {}

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Since the start; plain: what an all-reduce of the gradients would send and receive."""
        links = self._links
        return (Traffic("factors", "to each other", links.sent_bytes, links.received_bytes, self._plain_bytes),)

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        """Send what this rank has of the buffer's layer, all of it at once; each buffer has its turn once a step."""
        if buffer not in self._coming:
            self._begin_step()
        links, payload, coming = self._links, self.memory[buffer].payload, self._coming[buffer]
        own, shape = payload.leave(), self._plans[buffer].shape
        self._plain_bytes += 4 * (links.size - 1) * shape.numel * shape.dtype.itemsize // links.size
        count = torch.tensor([UNUSED if own is None else own.shape[0]])
        rows = own if own is not None else payload.rows.new_empty(0, payload.width)
        sends = []
        for to in coming.to:
            sends.append(links.send(count, to, _tag(buffer)))
            awaited = self._sent.get((buffer, to), 0)
            self._sent[buffer, to] = rows.shape[0]
            for part, rest in enumerate((_filled(rows, awaited), rows[awaited:])):
                if rest.numel():
                    sends.append(links.send(rest, to, _tag(buffer) + 1 + part))
        return _Underway(self, buffer, int(count), rows, sends)

    def finish(self, sum_: _Underway) -> None:
        """Take everybody's rows. Raises PeerLost if a peer went away."""
        links, buffer, payload = self._links, sum_.buffer, self.memory[sum_.buffer].payload
        coming = self._coming.pop(buffer)
        counts = {links.rank: sum_.count}
        for source, one in coming.counts.items():
            coming.transfers[source].wait()
            counts[source] = int(one)
        rows, places = coming.rows, coming.places
        if any(max(0, counts[rank]) != at.shape[0] for rank, at in places.items()):
            rows = torch.empty(sum(max(0, count) for count in counts.values()), payload.width, dtype=rows.dtype)
            places = _places(rows, {rank: max(0, count) for rank, count in counts.items()})
        more = [
            links.receive(places[source][at.shape[0] :], source, _tag(buffer) + 2)
            for source, at in coming.places.items()
            if source != links.rank and places[source].shape[0] > at.shape[0]
        ]
        for transfer in (*coming.awaited, *more, *sum_.sends):
            transfer.wait()
        for rank, at in places.items():
            first = sum_.rows if rank == links.rank else coming.places[rank][: at.shape[0]]
            if first.data_ptr() != at.data_ptr():
                at[: first.shape[0]].copy_(first)
            self._arrived[buffer, rank] = at.shape[0]
        payload.landed(rows, links.size / (self._reach[buffer] + 1))
        self._write_users(buffer, list(counts.values()))

    def _begin_step(self) -> None:
        """Await the rows of all layers before they come: as many as the last time, and the number of them."""
        links, others = self._links, self._links.size - 1
        for buffer, (memory, reach) in enumerate(zip(self.memory, self._reach, strict=True)):
            offsets = [1 + (self._steps * reach + turn) % others for turn in range(reach)]
            to = [(links.rank + offset) % links.size for offset in offsets]
            sources = [(links.rank - offset) % links.size for offset in offsets]
            expected = {rank: self._arrived.get((buffer, rank), 0) for rank in (links.rank, *sources)}
            rows = memory.payload.room(sum(expected.values()))
            places = _places(rows, expected)
            counts = {source: torch.empty(1, dtype=torch.int64) for source in sources}
            transfers = {source: links.receive(counts[source], source, _tag(buffer)) for source in sources}
            awaited = [links.receive(places[one], one, _tag(buffer) + 1) for one in sources if expected[one]]
            self._coming[buffer] = _Coming(to, rows, places, counts, transfers, awaited)
        self._steps += 1

    def _write_users(self, buffer: int, counts: Sequence[int]) -> None:
        """How many ranks had a gradient, into the bucket's head; ranks not heard count as if they had."""
        without = counts.count(UNUSED)
        users = 0 if without == len(counts) else self._links.size - without
        for number, (_, parameter) in enumerate(self._plans[buffer].parameters):
            self.memory[buffer].agreed[number] = users if parameter.requires_grad else 0


@dataclass(frozen=True)
class _Coming:
    """The awaited rows of a layer: where each rank's lie, and how many they are; rank by rank.

    to: who gets what this rank has.
    """

    to: list[int]
    rows: Tensor
    places: dict[int, Tensor]
    counts: dict[int, Tensor]
    transfers: dict[int, Transfer]  # of the counts
    awaited: list[Transfer]  # of the rows


@dataclass(frozen=True)
class _Underway:
    """A layer's rows on their way; rows: what is sent, kept until it has left."""

    sums: FactorSums
    buffer: int
    count: int
    rows: Tensor
    sends: list[Transfer]

    def wait(self) -> None:
        self.sums.finish(self)


def _places(rows: Tensor, counts: dict[int, int]) -> dict[int, Tensor]:
    """The part of the rows of each rank: all ranks add them in the same order."""
    ranks = sorted(counts)
    return dict(zip(ranks, torch.split(rows, [counts[rank] for rank in ranks]), strict=True))


def _filled(rows: Tensor, count: int) -> Tensor:
    """The first `count` rows; zeros where there are fewer."""
    if rows.shape[0] >= count:
        return rows[:count]
    return torch.cat([rows, rows.new_zeros(count - rows.shape[0], rows.shape[1])])


def factor_memory(plan: BucketPlan) -> FactorMemory:
    """Memory for a bucket whose gradients are formed of factors. Raises SettingError for values of other types."""
    if plan.dtype not in INDEX:
        raise SettingError(
            f"{plan.parameters[0][0]} is {str(plan.dtype).removeprefix('torch.')} and would travel as factors; "
            "accepted: float32, float64"
        )
    # pages that nobody writes cost nothing: where chunks are formed elsewhere, all but the head
    flat = torch.empty(plan.shape.numel, dtype=plan.dtype, device=plan.device)
    flat[: plan.head] = 0
    return FactorMemory(flat, flat, Payload(plan.dtype, plan.device))


def _tag(buffer: int) -> int:
    return FIRST_TAG + 3 * buffer
