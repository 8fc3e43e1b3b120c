"""Rates that earlier groups of the same run measured: noted at its board, by the ends of each link.

They hold as long as the run: where members are lost, leave or join, only links that no group has measured are.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

from volary.comm.groups.leading import from_leader

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.comm.topology.kept_rates import Groups
    from volary.comm.topology.topology import Topology
    from volary.comm.topology.tournament import Rates

TOPIC = "rates of links"
MOST_LINKS = 2016  # of 64 nodes; those of members that are gone are forgotten first


def load(bulletin: Bulletin, topology: Topology) -> tuple[Rates, Groups]:
    """Return the rates that are known of these links, and the sub-networks that showed among these nodes; on all ranks.

    A collective call.
    """

    def known() -> dict[str, Any]:
        rates, groups = _noted(bulletin)
        ends = _ends(topology)
        pairs = list(combinations(range(len(ends)), 2))
        return {
            "rates": [(*pair, rates[link]) for pair in pairs if (link := _link(ends, pair)) in rates],
            "groups": _left([[ends.index(end) for end in group if end in ends] for group in groups]),
        }

    posted = from_leader(bulletin, "known rates", known)
    return {(one, other): rate for one, other, rate in posted["rates"]}, tuple(map(tuple, posted["groups"]))


def note(bulletin: Bulletin, topology: Topology, rates: Rates, groups: Groups) -> None:
    """Note what was measured for later groups of the run: what is known of other links stays."""
    ends = _ends(topology)
    newest = {_link(ends, pair): rate for pair, rate in rates.items()}
    links = [*newest.items(), *(one for one in _noted(bulletin)[0].items() if one[0] not in newest)][:MOST_LINKS]
    named = [[ends[node] for node in group] for group in groups]
    bulletin.note(TOPIC, {"rates": [(*link, rate) for link, rate in links], "groups": named})


def _noted(bulletin: Bulletin) -> tuple[dict[tuple[str, str], float], list[list[str]]]:
    noted = bulletin.noted(TOPIC)
    if noted is None:
        return {}, []
    return {(one, other): rate for one, other, rate in noted["rates"]}, noted["groups"]


def _ends(topology: Topology) -> list[str]:
    """Each node's host and link, and which of several alike it is; how many ranks it has changes with members."""
    seen = Counter[str]()
    ends = []
    for host, link in zip(topology.hosts, topology.links, strict=True):
        name = f"{host} ({link})"
        ends.append(f"{name} {seen[name]}")
        seen[name] += 1
    return ends


def _link(ends: list[str], pair: tuple[int, int]) -> tuple[str, str]:
    one, other = sorted(ends[node] for node in pair)
    return one, other


def _left(groups: list[list[int]]) -> list[list[int]]:
    """The groups, if they are sub-networks of two or more nodes still."""
    found = [sorted(group) for group in groups if group]
    return sorted(found) if len(found) > 1 and min(map(len, found)) > 1 else []
