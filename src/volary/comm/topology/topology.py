"""Ranks by node, nodes by sub-network, and what the links between nodes carry: found or described."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.comm.groups.leading import from_leader
from volary.comm.memory import futex
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin


@dataclass(frozen=True)
class Topology:
    """The same on all ranks.

    nodes: the ranks of each node, ascending; nodes are in the order of their first ranks. hosts: their names. links:
    what each node's link is known by; nothing where nobody measures.
    subnetworks: the nodes of each, ascending, by their place in `nodes`. within_bytes_per_s, between_bytes_per_s: what
    a link between two nodes carries in each direction while all are busy, the slowest pair inside sub-networks and the
    fastest across; None: not measured, or there is no such pair. source: where the sub-networks are known from.
    unshared: why ranks of one machine cannot share memory, and so are nodes of their own; empty if they can.
    """

    nodes: tuple[tuple[int, ...], ...]
    hosts: tuple[str, ...]
    subnetworks: tuple[tuple[int, ...], ...]
    within_bytes_per_s: float | None = None
    between_bytes_per_s: float | None = None
    source: str = "found"
    unshared: str = ""
    links: tuple[str, ...] = ()

    @classmethod
    def of(cls, *nodes: Sequence[int], subnetworks: Sequence[Sequence[int]] = ()) -> Topology:
        """A topology of these nodes, called node0 and so on, in these sub-networks, or in one."""
        groups = tuple(tuple(group) for group in subnetworks) or (tuple(range(len(nodes))),)
        hosts = tuple(f"node{number}" for number in range(len(nodes)))
        return cls(tuple(tuple(ranks) for ranks in nodes), hosts, groups, source="given", links=hosts)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All ranks, in order: the ranks of a node follow each other, and so do the nodes of a sub-network."""
        return tuple(rank for nodes in self.subnetworks for node in nodes for rank in self.nodes[node])

    @property
    def leaders(self) -> list[int]:
        """The first rank of each node."""
        return [ranks[0] for ranks in self.nodes]

    @property
    def shares_nodes(self) -> bool:
        """Whether a node has several ranks."""
        return any(len(ranks) > 1 for ranks in self.nodes)

    @property
    def equal_subnetworks(self) -> bool:
        """Whether there are several sub-networks, of as many nodes each."""
        return len(self.subnetworks) > 1 and len({len(nodes) for nodes in self.subnetworks}) == 1

    def node_of(self, rank: int) -> int:
        """The place of a rank's node in `nodes`."""
        return next(place for place, ranks in enumerate(self.nodes) if rank in ranks)

    def place_of(self, node: int) -> tuple[int, int]:
        """A node's sub-network, and its place in it."""
        return next((group, nodes.index(node)) for group, nodes in enumerate(self.subnetworks) if node in nodes)

    def __str__(self) -> str:
        sizes = Counter(len(ranks) for ranks in self.nodes)
        parts = [
            f"{_count(nodes, 'node')} of {_count(ranks, 'rank')}"
            for ranks, nodes in sorted(sizes.items(), reverse=True)
        ]
        text = " and ".join(parts)
        if len(self.subnetworks) > 1:
            names = ["+".join(self.hosts[node] for node in nodes) for nodes in self.subnetworks]
            text += f" in {len(names)} sub-networks ({', '.join(names)}; {self.source})"
        if self.within_bytes_per_s:
            text += f", {_megabytes(self.within_bytes_per_s)} between two nodes"
        if self.between_bytes_per_s:
            text += f", {_megabytes(self.between_bytes_per_s)} across sub-networks"
        return text


def described(description: Path, hosts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The sub-networks that a file describes, as places in `hosts`, by host names (what `hostname` prints).

        subnetworks:
          - [h0, h1]
          - [h2, h3]

    Raises SettingError if it is not like that, or names other hosts than these.
    """
    groups = subnetworks_in(description)
    named = [name for group in groups for name in group]
    problems = [
        f"{what} {', '.join(sorted(wrong))}"
        for what, wrong in (
            ("names twice", {name for name in named if named.count(name) > 1}),
            ("names hosts that have no worker:", set(named) - set(hosts)),
            ("leaves out", set(hosts) - set(named)),
        )
        if wrong
    ]
    if problems:
        known = ", ".join(dict.fromkeys(hosts))
        raise SettingError(f"{description}: subnetworks {'; '.join(problems)}; accepted: each of {known} once")
    return tuple(tuple(node for node, host in enumerate(hosts) if host in group) for group in groups)


def nodes_of(bulletin: Bulletin) -> Topology:
    """Find who shares memory with whom, in one sub-network, and why ranks that could do not. A collective call."""
    from volary.comm.groups import gloo
    from volary.comm.memory.shared_memory import machine
    from volary.comm.topology.kept_rates import own_link

    own = {"machine": machine(), "host": socket.gethostname(), "why_not": futex.why_not()}
    posted = bulletin.share("where", own | {"link": own_link(gloo.address())})
    members: dict[str, list[int]] = {}
    for rank, one in enumerate(posted):
        # who cannot wait in shared memory is a node of its own
        members.setdefault(f"rank {rank}" if one["why_not"] else one["machine"], []).append(rank)
    nodes = tuple(tuple(ranks) for ranks in members.values())
    first = [posted[ranks[0]] for ranks in nodes]
    return Topology(
        nodes,
        tuple(str(one["host"]) for one in first),
        (tuple(range(len(nodes))),),
        unshared=next((str(one["why_not"]) for one in posted if one["why_not"]), ""),
        links=tuple(str(one["link"]) for one in first),
    )


def as_described(bulletin: Bulletin, found: Topology, description: Path) -> Topology:
    """`found` in the sub-networks of a file that rank 0 reads. A collective call. Raises SettingError, on all ranks."""

    def groups() -> dict[str, Any]:
        try:
            return {"groups": described(description, found.hosts)}
        except SettingError as error:
            return {"refused": str(error)}

    agreed = from_leader(bulletin, "sub-networks", groups)
    if "refused" in agreed:
        raise SettingError(agreed["refused"])
    subnetworks = tuple(tuple(nodes) for nodes in agreed["groups"])
    return replace(found, subnetworks=subnetworks, source=f"described in {description}")


def subnetworks_in(description: Path) -> list[list[str]]:
    """The host names of each sub-network that a file describes. Raises SettingError if it is not such a file."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        known = YAML(typ="safe", pure=True).load(description.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise SettingError(f"{description}: cannot be read: {str(error).splitlines()[0]}") from None
    groups = known.get("subnetworks") if isinstance(known, dict) and len(known) == 1 else None
    if not isinstance(groups, list) or not groups or not all(_names(group) for group in groups):
        raise SettingError(f"{description}: accepted: `subnetworks:` and under it a list of lists of host names")
    return [[str(name) for name in group] for group in groups]


def _names(group: Any) -> bool:
    return isinstance(group, list) and bool(group) and all(isinstance(name, str) for name in group)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _megabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g} MB/s"
