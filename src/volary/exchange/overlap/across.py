"""Sums of groups of ranks that each share out what they keep, added up over all groups.

Within a group a sum comes to the owner of a value alone; then the owners of the same value, one in each group, add
theirs up. So each link between groups carries a share of the values (Zhao et al., "PyTorch FSDP", VLDB 2023, call it
hybrid sharding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import add_up

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.hops import Piece
    from volary.comm.sums.route import Arrival, BufferSums, Memory
    from volary.exchange.gradients.owned import OwnedValues
    from volary.exchange.gradients.plan import BucketPlan


class AcrossReplicas:
    """See `volary.comm.sums.route.BufferSums`. within: of this rank's group. across: the ranks that own the same.

    Its buffers are those of `plans`, then the votes, and then what each group has for itself. across_bytes: that this
    rank has sent between groups, and received, since it started.
    """

    def __init__(self, within: BufferSums, across: Group, plans: Sequence[BucketPlan], owned: OwnedValues) -> None:
        self._within, self._across, self._plans, self._owned = within, across, plans, owned
        self._own = cache(self._owned_of)  # the same chunks in every step
        self.in_flight = within.in_flight
        self._share = 2 * (across.size - 1) / across.size
        self.across_bytes = 0

    @property
    def memory(self) -> Sequence[Memory]:
        return self._within.memory

    def sum_up(self, buffer: int, start: int, end: int) -> Arrival:
        arrival = self._within.sum_up(buffer, start, end)
        return arrival if buffer > len(self._plans) else _Within(self, arrival, buffer, start, end)

    def add_up(self, buffer: int, start: int, end: int) -> None:
        """Add up what the groups have of this range, in place."""
        own = [self.memory[buffer].agreed[low:high] for low, high in self._own(buffer, start, end)]
        together = torch.cat(own)
        add_up(together, self._across)
        self.across_bytes += int(self._share * together.nbytes)
        for values, total in zip(own, together.split(list(map(len, own))), strict=True):
            values.copy_(total)

    def _owned_of(self, buffer: int, start: int, end: int) -> Sequence[Piece]:
        """The values whose sums this rank has: all votes; of a bucket the head, and what this rank owns."""
        if buffer == len(self._plans):
            return [(start, end)]
        division = self._owned.division(self._plans[buffer], start, end)
        own = [(0, division.everybody), *division.owned[self._owned.rank]]
        return [(start + low, start + high) for low, high in own]


@dataclass(frozen=True)
class _Within:
    """A sum that is under way within a group."""

    sums: AcrossReplicas
    arrival: Arrival
    buffer: int
    start: int
    end: int

    def wait(self) -> None:
        self.arrival.wait()
        self.sums.add_up(self.buffer, self.start, self.end)
