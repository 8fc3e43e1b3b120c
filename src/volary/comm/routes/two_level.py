"""Two levels in three phases: inside the node, between the nodes, inside the node.

The ranks of a node add in shared memory, in place; each takes its share of the sum around a ring of the ranks with the
same share on the other nodes; everybody reads the result where it lies. A node's link carries 2 (n - 1) / n of the
values for n nodes, where a flat ring of n k ranks loads it with 2 (n k - 1) / (n k). Horovod's hierarchical all-reduce
goes the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.routes._base import RoutePlugin
from volary.comm.sums.hops import Hop, around

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology


@dataclass(frozen=True, kw_only=True)
class TwoLevel(RoutePlugin):
    """Sums inside each node in shared memory, between nodes around a ring."""

    levels = True
    preference = 1

    def refusal(self, topology: Topology) -> str:
        if len(topology.nodes) > 1 and topology.shares_nodes:
            return ""
        return topology.unshared or f"it needs several nodes and several workers on one of them; found: {topology}"

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`.

        Raises OSError, on all ranks of a node, if there is not so much shared memory there.
        """
        from volary.comm.sums.levels import levels

        nodes = [topology.nodes[node] for group in topology.subnetworks for node in group]
        place = nodes.index(topology.nodes[topology.node_of(group.rank)])

        def lane(number: int, start: int, end: int, value_bytes: int) -> Sequence[Hop]:
            return list(around([node[number] for node in nodes], place, start, end, value_bytes, first=True))

        return levels("two_level", group, shapes, topology, lane)


ROUTE = TwoLevel
