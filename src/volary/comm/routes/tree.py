"""The tree: a binomial tree sums towards its root and broadcasts from it; for sums that are all latency.

2 log2 n messages follow each other where a ring has 2 (n - 1); but the busiest rank sends the values log2 n times
(Thakur, Rabenseifner & Gropp, IJHPCA 2005, compare them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.routes._base import RoutePlugin
from volary.comm.sums.hops import Hop, pieces
from volary.comm.sums.route import Memory

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Tree(RoutePlugin):
    """Sums up a binomial tree and down again; subtrees are ranks that are near each other."""

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`."""
        from volary.comm.sums.sums import Sums, by_length, needs_cpu

        needs_cpu("tree", shapes)

        order = topology.order
        place = order.index(group.rank)

        def plan(numel: int, value_bytes: int) -> Sequence[Hop]:
            return list(hops(order, place, numel, value_bytes))

        return Sums(group, [Memory.in_place(shape) for shape in shapes], by_length(plan, shapes))


def family(places: int, place: int) -> tuple[int | None, list[int]]:
    """The parent and the children, nearest first, of `place` in a binomial tree whose root is place 0."""
    bit, children = 1, []
    while not place & bit and bit < places:
        if place + bit < places:
            children.append(place + bit)
        bit *= 2
    return place - bit if place else None, children


def hops(order: Sequence[int], place: int, numel: int, value_bytes: int) -> Iterator[Hop]:
    """The hops of `place` in `order`: all segments up, then all down.

    The largest subtree, which takes longest, is waited for last and served first.
    """
    above, below = family(len(order), place)
    parent, children = None if above is None else order[above], [order[child] for child in below]
    largest = children.pop() if children else None
    segments = pieces(0, numel, value_bytes)
    for low, high in segments:
        for child in children:
            yield Hop(low, high, source=child, add=True)
        yield Hop(low, high, source=largest, to=parent, add=True)
    for low, high in segments:
        yield Hop(low, high, source=parent, to=largest)
        for child in reversed(children):
            yield Hop(low, high, to=child)


ROUTE = Tree
