"""Rings between nodes: the ranks that have the same place on their nodes form one, and those of a node are mates.

With one rank a node there is one ring of all; with all on one node everybody is everybody's mate, and a ring has one
rank. So each share passes a link between two nodes once, however many ranks a node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.comm.topology.topology import Topology


@dataclass(frozen=True)
class Rails:
    """ring: the ranks of this rank's ring, in its direction, from this rank on. mates: those of the node's others.

    A mate's ring begins with the mate. They come in turn after this rank, so that not all begin with the same.
    """

    ring: list[int]
    mates: dict[int, list[int]]

    def next_of(self, rank: int) -> list[int]:
        """Whom this rank sends what is `rank`'s: the next of its ring, unless it is his, and its mates."""
        return [one for one in self.ring[1:2] if one != rank] + list(self.mates)


def between_nodes(rank: int, topology: Topology) -> Rails:
    """The rails as `rank` sees them; where nodes have different numbers of ranks, each rank is a node of its own."""
    nodes = [topology.nodes[node] for nodes in topology.subnetworks for node in nodes]
    if len({len(ranks) for ranks in nodes}) > 1:
        nodes = [(rank,) for rank in topology.order]
    return _seen_from(rank, nodes)


def direct(rank: int, topology: Topology) -> Rails:
    """Nobody relays: each rank sends to every other directly."""
    return _seen_from(rank, [topology.order])


def _seen_from(rank: int, nodes: Sequence[Sequence[int]]) -> Rails:
    at = next(number for number, ranks in enumerate(nodes) if rank in ranks)
    rings = [list(ring) for ring in zip(*nodes[at:], *nodes[:at], strict=True)]
    own = nodes[at].index(rank)
    return Rails(rings[own], {ring[0]: ring for ring in [*rings[own + 1 :], *rings[:own]]})
