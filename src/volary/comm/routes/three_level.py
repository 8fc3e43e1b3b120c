"""Three levels: device, node, sub-network.

The ranks of a node add in shared memory. The nodes of a sub-network then scatter the sum among themselves, each sums
its slice with its counterparts in the other sub-networks, and they gather the slices again. A trunk between g
sub-networks carries 2 (g - 1) / g of the values in each direction, where a ring of n nodes loads it with 2 (n - 1) / n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from volary.comm.routes._base import RoutePlugin
from volary.comm.sums.hops import Hop, around, gather, scatter, share

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology

BLOCK_BYTES = 2 * 1024 * 1024  # the trunk carries one while the links inside carry the next
MOST_BLOCKS = 64


@dataclass(frozen=True, kw_only=True)
class ThreeLevel(RoutePlugin):
    """Sums inside each node in shared memory, inside each sub-network, and across sub-networks in slices."""

    levels = True
    preference = 2

    def refusal(self, topology: Topology) -> str:
        if topology.equal_subnetworks:
            return ""
        return f"it needs two or more sub-networks of as many nodes each; found: {topology}"

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`.

        Raises OSError, on all ranks of a node, if there is not so much shared memory there.
        """
        from volary.comm.sums.levels import levels

        near, place = topology.place_of(topology.node_of(group.rank))

        def lane(number: int, start: int, end: int, value_bytes: int) -> Sequence[Hop]:
            carriers = [[topology.nodes[node][number] for node in nodes] for nodes in topology.subnetworks]
            across = [members[place] for members in carriers]
            return list(hops(carriers[near], place, across, near, start, end, value_bytes))

        return levels("three_level", group, shapes, topology, lane)


def hops(
    near: Sequence[int], place: int, far: Sequence[int], group: int, start: int, end: int, value_bytes: int
) -> Iterator[Hop]:
    """The hops of the rank at `place` of its sub-network, `near`, and at `group` of its counterparts, `far`.

    One block goes across while the next is scattered and the one before is gathered.
    """
    count = min(max(1, (end - start) * value_bytes // BLOCK_BYTES), MOST_BLOCKS)
    under_way: list[Hop] = []
    for number in range(count):
        block = share(start, end, count, number)
        across = around(far, group, *share(*block, len(near), place), value_bytes, first=False)
        # blocks overtake each other between sub-networks
        across_all = [replace(hop, flow=1 + number) for hop in across]
        leaves = list(takewhile(lambda hop: hop.source is None, across_all))
        slices = [[share(*block, len(near), other)] for other in range(len(near))]
        yield from scatter(near, place, slices, value_bytes)
        yield from leaves
        yield from under_way
        under_way = [*across_all[len(leaves) :], *gather(near, place, slices, value_bytes)]
    yield from under_way


ROUTE = ThreeLevel
