"""The way from one rank to all, as a binomial tree or a line of ranks. Both enter each node once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from volary.comm.topology.topology import Topology


_T = TypeVar("_T")


@dataclass(frozen=True)
class TreePlace:
    """A rank's place: who is nearer to the root (None: it is the root), and who is next, in the order of sending."""

    parent: int | None
    children: list[int]


def tree(rank: int, root: int, topology: Topology) -> TreePlace:
    """A binomial tree between one rank of each node, and one inside each node."""
    nodes = _from(root, topology)
    own = next(ranks for ranks in nodes if rank in ranks)
    inside = _binomial(own, rank)
    if rank != own[0]:
        return inside
    between = _binomial([ranks[0] for ranks in nodes], rank)
    return TreePlace(between.parent, between.children + inside.children)  # those who are far away wait longest


def line(rank: int, root: int, topology: Topology) -> TreePlace:
    """Ranks one after the other: the ranks of a node side by side, and the nodes of a sub-network."""
    order = [one for ranks in _from(root, topology) for one in ranks]
    at = order.index(rank)
    return TreePlace(order[at - 1] if at else None, order[at + 1 : at + 2])


def _from(root: int, topology: Topology) -> list[list[int]]:
    """The ranks of each node: `root`, its node and its sub-network come first."""
    home = topology.node_of(root)
    group, place = topology.place_of(home)
    nodes = _turned(topology.subnetworks[group], place)
    nodes += [node for other in _turned(topology.subnetworks, group)[1:] for node in other]
    ranks = [list(topology.nodes[node]) for node in nodes]
    return [_turned(ranks[0], ranks[0].index(root)), *ranks[1:]]


def _turned(items: Sequence[_T], first: int) -> list[_T]:
    return [*items[first:], *items[:first]]


def _binomial(ranks: Sequence[int], rank: int) -> TreePlace:
    """The tree over `ranks` whose root is the first: place p receives from the place that is p less its lowest bit."""
    at, count = ranks.index(rank), len(ranks)
    lowest = at & -at
    reach = lowest or 1 << count.bit_length()
    steps = [1 << bit for bit in reversed(range(reach.bit_length() - 1))]
    return TreePlace(ranks[at - lowest] if at else None, [ranks[at + step] for step in steps if at + step < count])
