"""Broadcast: all ranks get one rank's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.comm.collectives import checks, trees
from volary.comm.collectives.shares import pieces

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links
    from volary.comm.topology.topology import Topology

CHAIN_FROM_BYTES = 128 * 2**10
# a line's last rank begins one piece a hop later, so pieces are small; each wakes a process, so they are not too small
PIECES, LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 32, 64 * 2**10, 2**20


def broadcast(links: Links, values: Tensor, root: int, topology: Topology, algorithm: str | None = None) -> None:
    """Give all ranks the values that `root` has. A collective.

    values: of any dtype and shape, contiguous, on the cpu; of the same size everywhere. algorithm: one of `ALGORITHMS`;
    None: by size. Raises SettingError, and PeerLost.
    """
    checks.root_of(root, links.size)
    data = checks.flat(values).view(torch.uint8)
    name = algorithm or ("chain" if data.numel() >= CHAIN_FROM_BYTES else "tree")
    checks.way(name, ALGORITHMS)(links, data, root, topology)


def piece_bytes(size_bytes: int) -> int:
    """Bytes of a piece that travels down a line, for a tensor of that size."""
    return min(MOST_PIECE_BYTES, max(LEAST_PIECE_BYTES, size_bytes // PIECES))


def _tree(links: Links, data: Tensor, root: int, topology: Topology) -> None:
    """Whole, down a binomial tree: the fewest hops, but the root's link carries several copies."""
    _down(links, data, trees.tree(links.rank, root, topology), data.numel())


def _chain(links: Links, data: Tensor, root: int, topology: Topology) -> None:
    """Send in pieces, down a line: every link carries the values once, and all at the same time."""
    _down(links, data, trees.line(links.rank, root, topology), piece_bytes(data.numel()))


def _down(links: Links, data: Tensor, place: trees.TreePlace, size_bytes: int) -> None:
    cut = pieces(data, size_bytes)
    arriving = [links.receive(piece, place.parent) for piece in cut] if place.parent is not None else []
    leaving = []
    for number, piece in enumerate(cut):
        if arriving:
            arriving[number].wait()
        leaving += [links.send(piece, child) for child in place.children]
    for transfer in leaving:
        transfer.wait()


ALGORITHMS = {"tree": _tree, "chain": _chain}
