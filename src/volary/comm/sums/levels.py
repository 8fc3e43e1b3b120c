"""A route of several levels: ranks of a node add in shared memory, in place, and share the way between the nodes.

A range is cut into lanes, one for each rank of the smallest node; on larger nodes the other ranks only contribute. The
rank of a lane adds what its node contributes to it, segment by segment and just before the segment leaves, so that the
wire does not wait for the adding; sums it with the ranks of the same lane on the other nodes; and stores the result
where everybody on its node reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volary.comm.groups.group import LAST_RESORT_S
from volary.comm.sums.hops import Hop, share
from volary.comm.sums.node import NodeBuffers
from volary.comm.sums.route import Memory
from volary.comm.sums.sums import Sums, by_length, needs_cpu

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape
    from volary.comm.topology.topology import Topology


Lane = Callable[[int, int, int, int], Sequence[Hop]]  # number of a lane, its values from start to end, bytes of a value


def levels(name: str, group: Group, shapes: Sequence[BufferShape], topology: Topology, lane: Lane) -> Sums:
    """The sums of a route called `name`: inside nodes in shared memory, between them along the hops of `lane`.

    A collective call. Raises SettingError for values that are not in this machine's memory, OSError on all ranks of a
    node that has not so much memory.
    """
    needs_cpu(name, shapes)
    ranks = topology.nodes[topology.node_of(group.rank)]
    number, lanes = ranks.index(group.rank), min(len(node) for node in topology.nodes)

    def plan(numel: int, value_bytes: int) -> Sequence[Hop]:
        return lane(number, *share(0, numel, lanes, number), value_bytes) if number < lanes else []

    node = NodeBuffers(group.bulletin, ranks, shapes, LAST_RESORT_S) if len(ranks) > 1 else None
    memory = [Memory.in_place(shape) for shape in shapes] if node is None else node.memory
    return Sums(group, memory, by_length(plan, shapes), node)
