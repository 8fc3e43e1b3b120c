"""Partitioned linear topology: the tensor in parts, each part travelling a line of ranks there and back.

A part is summed in segments from the first rank of its line to the last and returns the same way (linear pipelining:
Wang, Wu, Bosilca, Vuduc & Xu 2016, arXiv:1611.04255). One line would load the ranks inside it with 2 of the values and
its ends with 1. So each part has a line of its own. With an even number n of ranks the n / 2 zigzag lines

    k, k + 1, k - 1, k + 2, k - 2, ..., k + n / 2    (modulo n)

use each pair of ranks once: no link carries two parts in one direction, each rank is the end of one line, and sends
2 (n - 1) / n of the values, as in a ring. With an odd number there are n such lines, and each pair is used twice.
Lines pass through the ranks of a node, and the nodes of a sub-network, one after the other: a trunk between two
sub-networks carries the values once in each direction, where a ring loads it with 2 (n - 1) / n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from volary.comm.routes._base import RoutePlugin
from volary.comm.sums.hops import Hop, pieces, share
from volary.comm.sums.route import Memory

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology

T = TypeVar("T")

FILLED = 4  # segments for each rank of a line, where there are values enough: a line is idle until it is filled


@dataclass(frozen=True, kw_only=True)
class Linear(RoutePlugin):
    """Sums each part along a line of its own, and sends it back along the line."""

    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`."""
        from volary.comm.sums.sums import Sums, by_length, needs_cpu

        needs_cpu("linear", shapes)

        places = lines(topology)

        def plan(numel: int, value_bytes: int) -> Sequence[Hop]:
            return hops(places, group.rank, numel, value_bytes)

        return Sums(group, [Memory.in_place(shape) for shape in shapes], by_length(plan, shapes))


def zigzag(items: Sequence[T], turn: int) -> list[T]:
    """The items in the order turn, turn + 1, turn - 1, turn + 2, ...: neighbours differ by every distance once."""
    distances = ((step + 1) // 2 * (1 if step % 2 else -1) for step in range(len(items)))
    return [items[(turn + distance) % len(items)] for distance in distances]


def lines(topology: Topology) -> list[list[int]]:
    """The chains that a sum is divided among: of each, its ranks in the order in which values pass them."""
    groups = [[topology.nodes[node] for node in nodes] for nodes in topology.subnetworks]
    if len(topology.nodes) == 1:
        groups = [[(rank,) for rank in topology.nodes[0]]]
    most = max(len(nodes) for nodes in groups)
    # in one group, line k + n / 2 is line k from its other end
    count = most // 2 if len(groups) == 1 and most % 2 == 0 else most
    return [
        [rank for nodes in groups for node in zigzag(nodes, turn) for rank in zigzag(node, turn)]
        for turn in range(count)
    ]


def hops(lines: Sequence[Sequence[int]], rank: int, numel: int, value_bytes: int) -> list[Hop]:
    """The hops of a rank, in the order of a clock that all share: every segment moves on by one rank a tick."""
    timed = [
        (tick, number, hop)
        for number, line in enumerate(lines)
        for tick, hop in _along(line, rank, number, *share(0, numel, len(lines), number), value_bytes)
    ]
    return [hop for _, _, hop in sorted(timed, key=lambda one: one[:2])]


def _along(
    line: Sequence[int], rank: int, number: int, start: int, end: int, value_bytes: int
) -> Iterator[tuple[int, Hop]]:
    """The hops of one part, each with its tick."""
    place, last = line.index(rank), len(line) - 1
    before = line[place - 1] if place > 0 else None
    after = line[place + 1] if place < last else None
    for tick, (low, high) in enumerate(pieces(start, end, value_bytes, FILLED * last)):
        if after is None:
            yield tick + last, Hop(low, high, before, before, add=True, flow=number)
            continue
        yield tick + place, Hop(low, high, before, after, add=True, flow=number)
        yield tick + 2 * last - place, Hop(low, high, after, before, flow=number)


ROUTE = Linear
