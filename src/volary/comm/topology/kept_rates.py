"""Rates of links that an earlier run measured: kept in rank 0's cache, by all that tells links apart.

Nobody trusts them unseen: a run that uses them measures all pairs again, shortly, and compares.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

import volary
from volary.comm.groups.leading import from_leader
from volary.run.machine.kept_figures import keep as keep_file
from volary.run.machine.kept_figures import path_of

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin
    from volary.comm.topology.topology import Topology

FILE = "links.json"
MOST_SETS = 16  # of machines; the oldest is forgotten
MOST_NODES = 64  # of a set: each pair has a figure

_log = logging.getLogger(__name__)

Groups = tuple[tuple[int, ...], ...]


class KeptRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rates of one set of machines. volary: the version that measured. rates: node, node, bytes per second each way.

    subnetworks: the groups of nodes that were found, twice; empty if there are none.
    """

    volary: str
    rates: tuple[tuple[int, int, float], ...]
    subnetworks: Groups = ()


def load(bulletin: Bulletin, topology: Topology) -> KeptRates | None:
    """Return the rates that rank 0 has kept of these links, on all ranks; None if none, or of another version."""

    def kept() -> Any:
        known = _read().get(_key(topology))
        return msgspec.to_builtins(known) if known is not None and known.volary == volary.__version__ else None

    posted = from_leader(bulletin, "kept rates", kept)
    return msgspec.convert(posted, KeptRates) if posted is not None else None


def keep(topology: Topology, rates: dict[tuple[int, int], float], subnetworks: Groups) -> None:
    """Keep what was measured for later runs, on this machine; where that cannot be written nothing is kept."""
    if len(topology.nodes) > MOST_NODES:
        return
    key, figures = _key(topology), tuple((one, other, rate) for (one, other), rate in rates.items())
    others = [(name, kept) for name, kept in _read().items() if name != key]
    known = dict([*others[-(MOST_SETS - 1) :], (key, KeptRates(volary.__version__, figures, subnetworks))])
    try:
        keep_file(FILE, msgspec.json.encode(known) + b"\n")
    except OSError as error:
        _log.info("what links carry could not be kept: %s", error)


def own_link(address: str) -> str:
    """Describe this machine's link: its address, interface, and nominal rate in Mbit/s (0: not known)."""
    import psutil

    entries = psutil.net_if_addrs().items()
    names = [name for name, found in entries if any(one.address.split("%")[0] == address for one in found)]
    speeds = {name: stats.speed for name, stats in psutil.net_if_stats().items()}
    return " ".join([address, *(f"{name} {speeds.get(name, 0)}" for name in names)])


def _key(topology: Topology) -> str:
    """The hosts, their links and numbers of ranks, and sub-networks where they are described."""
    each = zip(topology.hosts, topology.links, topology.nodes, strict=True)
    nodes = [f"{host} ({link}) x {len(ranks)}" for host, link, ranks in each]
    groups = [str(nodes) for nodes in topology.subnetworks] if len(topology.subnetworks) > 1 else []
    return ", ".join([*nodes, *groups])


def _read() -> dict[str, KeptRates]:
    path = path_of(FILE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, KeptRates])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("%s is ignored, as it cannot be read (%s); links are measured anew", path, error)
        return {}
