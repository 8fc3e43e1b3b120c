"""The ring: reduce-scatter and all-gather along a ring of ranks (Patarasuk & Yuan, JPDC 2009), in segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.routes._base import RoutePlugin
from volary.comm.sums.hops import Hop, around
from volary.comm.sums.route import Memory

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Ring(RoutePlugin):
    """Every rank sends 2 (n - 1) / n of the values, to one neighbour; neighbours are near each other."""

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`."""
        from volary.comm.sums.sums import Sums, by_length, needs_cpu

        needs_cpu("ring", shapes)

        order = topology.order
        place = order.index(group.rank)

        def plan(numel: int, value_bytes: int) -> Sequence[Hop]:
            return list(around(order, place, 0, numel, value_bytes, first=True))

        return Sums(group, [Memory.in_place(shape) for shape in shapes], by_length(plan, shapes))


ROUTE = Ring
