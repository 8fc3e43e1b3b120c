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

from volary.comm.routes._hops import Hop, around, gather, scatter, share
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.comm.routes._base import Bulletin, Route, Shape
    from volary.comm.topology import Topology

BLOCK_BYTES = 2 * 1024 * 1024  # the trunk carries one while the links inside carry the next
MOST_BLOCKS = 64


@dataclass(frozen=True, kw_only=True)
class ThreeLevel:
    """Sums inside each node in shared memory, inside each sub-network, and across sub-networks in slices."""

    def build(self, bulletin: Bulletin, shapes: Sequence[Shape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of the default group, which must have been joined.

        Raises SettingError where there are not several sub-networks of as many nodes each, OSError, on all ranks of a
        node, if there is not so much shared memory there.
        """
        from volary.comm.routes._levels import levels

        if not topology.equal_subnetworks:
            raise SettingError(
                f"route 'three_level' needs two or more sub-networks of as many nodes each; here: {topology}; "
                "nearest: two_level"
            )
        group, place = topology.place_of(topology.node_of(bulletin.rank))

        def lane(number: int, start: int, end: int, value_bytes: int) -> Sequence[Hop]:
            carriers = [[topology.nodes[node][number] for node in nodes] for nodes in topology.subnetworks]
            across = [members[place] for members in carriers]
            return list(hops(carriers[group], place, across, group, start, end, value_bytes))

        return levels("three_level", bulletin, shapes, topology, lane)


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
        yield from scatter(near, place, *block, value_bytes)
        yield from leaves
        yield from under_way
        under_way = [*across_all[len(leaves) :], *gather(near, place, *block, value_bytes)]
    yield from under_way


ROUTE = ThreeLevel
