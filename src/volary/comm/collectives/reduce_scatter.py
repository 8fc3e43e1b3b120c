"""Reduce-scatter: each rank gets the sum of its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.comm.collectives import checks
from volary.comm.collectives.all_gather import PIECE_BYTES, RING_FROM_BYTES
from volary.comm.collectives.arrivals import Arrivals
from volary.comm.collectives.rails import Rails, between_nodes, direct
from volary.comm.collectives.shares import pieces, share

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links
    from volary.comm.topology.topology import Topology


def reduce_scatter(links: Links, values: Tensor, topology: Topology, algorithm: str | None = None) -> None:
    """Leave in this rank's share of (numel,) `values` the sum of all ranks' (`share(numel, rank, world_size)`).

    values: fp32, fp64, bf16 or fp16, contiguous, on the cpu; of the same size everywhere. Sums are made in them, so the
    rest holds something else afterwards; the order depends on the ranks alone. Each node gets what it lacks, and no
    byte more. A collective. algorithm: one of `ALGORITHMS`; None: by size. Raises SettingError, and PeerLost.
    """
    data = checks.summable(values)
    name = algorithm or ("ring" if data.nbytes >= RING_FROM_BYTES else "direct")
    checks.way(name, ALGORITHMS)(links, data, topology)


def _direct(links: Links, data: Tensor, topology: Topology) -> None:
    """Each rank gets its share from every other: one hop, more messages."""
    _collect(links, data, direct(links.rank, topology))


def _ring(links: Links, data: Tensor, topology: Topology) -> None:
    """Send in pieces: a node adds up, and its sums go around rings between nodes (Patarasuk & Yuan 2009)."""
    _collect(links, data, between_nodes(links.rank, topology))


def _collect(links: Links, data: Tensor, rails: Rails) -> None:
    shares = [data[share(data.numel(), rank, links.size)] for rank in range(links.size)]
    cut = [pieces(one, PIECE_BYTES) for one in shares]
    first, *others = order = _order(rails.ring)
    around = [piece.numel() for rank in others for piece in cut[rank]]
    of_node = [piece.numel() for rank in order for piece in cut[rank]]
    before = Arrivals(links, rails.ring[-1], around, data.dtype)
    from_mates = [Arrivals(links, mate, of_node, data.dtype) for mate in rails.mates]
    leaving = [
        links.send(piece, mate) for mate, ring in rails.mates.items() for rank in _order(ring) for piece in cut[rank]
    ]
    for rank in order:
        for piece in cut[rank]:
            for arrival in from_mates if rank == first else [*from_mates, before]:
                arrival.add_to(piece)
            if rank != links.rank:
                leaving.append(links.send(piece, rails.ring[1]))
    for transfer in leaving:
        transfer.wait()


def _order(ring: Sequence[int]) -> list[int]:
    """Ranks whose shares a ring's first rank adds up, in turn: first the one before it, whose share goes farthest."""
    return [*reversed(ring[1:]), ring[0]]


ALGORITHMS = {"direct": _direct, "ring": _ring}
