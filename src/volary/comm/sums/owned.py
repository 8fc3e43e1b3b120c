"""Sums that come to their owners alone, and copies of what owners have: along a ring, no byte more than needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from volary.comm.sums.hops import Hop, Piece, around, gather, scatter
from volary.comm.sums.route import Memory
from volary.comm.sums.sums import Sums

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.topology.topology import Topology


@dataclass(frozen=True)
class Division:
    """Who owns which values of a range, counted from its first.

    everybody: so many values at its beginning are everybody's. owned: by rank, the pieces that are its own.
    """

    everybody: int
    owned: Sequence[Sequence[Piece]]


Divide = Callable[[int, int, int], Division]  # the values from start to end of a buffer


def owned_sums(group: Group, memory: Sequence[Memory], topology: Topology, divide: Divide, *, copied_from: int) -> Sums:
    """A route that leaves each sum with its owner; the others' contributions hold something else afterwards.

    Of buffers from number `copied_from` on it gives all ranks what each has of its own instead. Either way a link
    carries (n - 1) / n of the values, half of what an all-reduce sends (Patarasuk & Yuan, JPDC 2009).
    """
    ring = topology.order
    place = ring.index(group.rank)

    @cache
    def hops(buffer: int, start: int, end: int) -> Sequence[Hop]:
        division, value_bytes = divide(buffer, start, end), memory[buffer].agreed.element_size()
        slices = [division.owned[rank] for rank in ring]
        if buffer >= copied_from:
            return list(gather(ring, place, slices, value_bytes))
        everybody = around(ring, place, 0, division.everybody, value_bytes, first=True)
        return [*everybody, *scatter(ring, place, slices, value_bytes)]

    return Sums(group, memory, hops)
