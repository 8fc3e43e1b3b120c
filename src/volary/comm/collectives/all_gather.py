"""All-gather: all ranks get every rank's share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.comm.collectives import checks
from volary.comm.collectives.rails import Rails, between_nodes, direct
from volary.comm.collectives.shares import pieces, share

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links
    from volary.comm.topology.topology import Topology

RING_FROM_BYTES = 256 * 2**10
PIECE_BYTES = 2**20


def all_gather(links: Links, values: Tensor, topology: Topology, algorithm: str | None = None) -> None:
    """Fill (numel,) `values` with what each rank has in its share of them (`share(numel, rank, world_size)`).

    values: of any dtype, contiguous, on the cpu; of the same size everywhere. Each node gets what it lacks, and no byte
    more. A collective. algorithm: one of `ALGORITHMS`; None: by size. Raises SettingError, and PeerLost.
    """
    data = checks.flat(values)
    name = algorithm or ("ring" if data.nbytes >= RING_FROM_BYTES else "direct")
    checks.way(name, ALGORITHMS)(links, data, topology)


def _direct(links: Links, data: Tensor, topology: Topology) -> None:
    """Each rank sends its share to every other: one hop, more messages."""
    _spread(links, data, direct(links.rank, topology))


def _ring(links: Links, data: Tensor, topology: Topology) -> None:
    """Send in pieces, around rings between nodes (Patarasuk & Yuan 2009); what comes to a node goes to all of it."""
    _spread(links, data, between_nodes(links.rank, topology))


def _spread(links: Links, data: Tensor, rails: Rails) -> None:
    shares = [data[share(data.numel(), rank, links.size)] for rank in range(links.size)]
    cut = [pieces(one.view(torch.uint8), PIECE_BYTES) for one in shares]
    around = [(rank, piece) for rank in reversed(rails.ring[1:]) for piece in cut[rank]]
    arriving = [links.receive(piece, rails.ring[-1]) for _, piece in around]
    from_mates = [
        links.receive(piece, mate)
        for mate, ring in rails.mates.items()
        for rank in (mate, *reversed(ring[1:]))
        for piece in cut[rank]
    ]
    leaving = [links.send(piece, to) for piece in cut[links.rank] for to in rails.next_of(links.rank)]
    for (rank, piece), transfer in zip(around, arriving, strict=True):
        transfer.wait()
        leaving += [links.send(piece, to) for to in rails.next_of(rank)]
    for transfer in [*from_mates, *leaving]:
        transfer.wait()


ALGORITHMS = {"direct": _direct, "ring": _ring}
