"""Finds a group's topology, and what its links carry: as groups before it, or an earlier run, have, or measured.

Where an earlier run has kept it, a look is enough: the same tournament with less data. If that shows the same, the kept
figures are used, and else all is measured anew. Within a run nothing is looked at twice: links that are as slow as
those between distant sites would take longer to measure than members take to meet again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from volary.comm.topology import kept_rates, run_rates
from volary.comm.topology.topology import as_described, nodes_of
from volary.comm.topology.tournament import BUDGET_S, PROBE_BYTES, subnetworks, tournament
from volary.sharding.groups import leads

if TYPE_CHECKING:
    from pathlib import Path

    from volary.comm.topology.kept_rates import Groups
    from volary.comm.topology.links import Links
    from volary.comm.topology.topology import Topology
    from volary.comm.topology.tournament import Rates

LOOK_S = 0.1  # of all rounds together, roughly, where it is known what links should carry
ALIKE = 2.0  # a link whose rate differs by less than this factor is as it was


def find(links: Links, description: Path | None = None) -> Topology:
    """The topology of a group's ranks: nodes by who can share memory, sub-networks as described, else as measured.

    A collective call. description: a file for `described`; only rank 0 reads it. Raises SettingError, on all ranks, if
    it does not fit; PeerLost if a rank goes away meanwhile.
    """
    bulletin = links.group.bulletin
    found = nodes_of(bulletin)
    if description is not None:
        found = as_described(bulletin, found, description)
    return measured(links, found)


def measured(links: Links, topology: Topology) -> Topology:
    """`topology` with what its links carry, and where it has one sub-network with those that show twice.

    A collective call. Raises PeerLost if a rank goes away.
    """
    if len(topology.nodes) < 2:
        return topology
    bulletin = links.group.bulletin
    known, groups = run_rates.load(bulletin, topology)
    found = _in_this_run(links, topology, known, groups) if known else _in_first_group(links, topology)
    rates, groups = found
    if leads(links.rank) and rates != known:
        run_rates.note(bulletin, topology, rates, groups)
    if groups:
        topology = replace(topology, subnetworks=groups, source="measured")
    within, across = _sorted(topology, rates)
    return replace(
        topology, within_bytes_per_s=min(within, default=None), between_bytes_per_s=max(across, default=None)
    )


def _in_this_run(links: Links, topology: Topology, known: Rates, groups: Groups) -> tuple[Rates, Groups]:
    """The rates that are known, and those of links that no group of this run has measured yet."""
    new = set(combinations(range(len(topology.nodes)), 2)) - known.keys()
    if not new:
        return known, groups
    if not groups:  # else all have to play at once to show which of them a node belongs to
        rates = known | tournament(links, topology.leaders, only=new)
        if len(topology.subnetworks) > 1 or not subnetworks(rates, len(topology.nodes)):
            return rates, ()
    return _anew(links, topology)


def _in_first_group(links: Links, topology: Topology) -> tuple[Rates, Groups]:
    """The kept rates if a look at all pairs shows the same, else measured anew; alike on all ranks."""
    known = kept_rates.load(links.group.bulletin, topology)
    if known is None:
        return _anew(links, topology)
    rates = {(one, other): rate for one, other, rate in known.rates}
    seen = tournament(links, topology.leaders, LOOK_S)
    if all(1 / ALIKE < rate / rates[pair] < ALIKE for pair, rate in seen.items()):
        return rates, known.subnetworks
    if max(seen.values()) < PROBE_BYTES / BUDGET_S:  # so slow that measuring anew would be the same once more
        return seen, ()
    return _anew(links, topology)


def _anew(links: Links, topology: Topology) -> tuple[Rates, Groups]:
    """The rates, and the sub-networks that show twice where none are described; kept for later runs."""
    nodes = len(topology.nodes)
    groups: Groups = ()
    rates = tournament(links, topology.leaders)
    if len(topology.subnetworks) == 1 and (found := subnetworks(rates, nodes)):
        again = tournament(links, topology.leaders)
        rates = {pair: max(rate, again[pair]) for pair, rate in rates.items()}
        groups = found if subnetworks(again, nodes) == found == subnetworks(rates, nodes) else ()
    if leads(links.rank):
        kept_rates.keep(topology, rates, groups)
    return rates, groups


def _sorted(topology: Topology, rates: Rates) -> tuple[list[float], list[float]]:
    """The rates inside sub-networks, and across."""
    group = [topology.place_of(node)[0] for node in range(len(topology.nodes))]
    within = [rate for (one, other), rate in rates.items() if group[one] == group[other]]
    across = [rate for (one, other), rate in rates.items() if group[one] != group[other]]
    return within, across
