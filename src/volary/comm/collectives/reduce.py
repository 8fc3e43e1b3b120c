"""Reduce: one rank gets the sum of all ranks' values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.collectives import checks, trees
from volary.comm.collectives.arrivals import Arrivals
from volary.comm.collectives.broadcast import CHAIN_FROM_BYTES, piece_bytes
from volary.comm.collectives.shares import pieces

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links
    from volary.comm.topology.topology import Topology


def reduce(links: Links, values: Tensor, root: int, topology: Topology, algorithm: str | None = None) -> None:
    """Leave the sum of all ranks' values in `root`'s. A collective.

    values: fp32, fp64, bf16 or fp16, of any shape, contiguous, on the cpu; of the same size everywhere. Sums are made
    in them, so the other ranks' hold something else afterwards; the order depends on the ranks alone. algorithm: one of
    `ALGORITHMS`; None: by size. Raises SettingError, and PeerLost.
    """
    checks.root_of(root, links.size)
    data = checks.summable(values)
    name = algorithm or ("chain" if data.nbytes >= CHAIN_FROM_BYTES else "tree")
    checks.way(name, ALGORITHMS)(links, data, root, topology)


def _tree(links: Links, data: Tensor, root: int, topology: Topology) -> None:
    """Whole, up a binomial tree: the fewest hops, but the root's link carries several."""
    _up(links, data, trees.tree(links.rank, root, topology), data.nbytes)


def _chain(links: Links, data: Tensor, root: int, topology: Topology) -> None:
    """Send in pieces, up a line: every link carries the values once, and all at the same time."""
    _up(links, data, trees.line(links.rank, root, topology), piece_bytes(data.nbytes))


def _up(links: Links, data: Tensor, place: trees.TreePlace, size_bytes: int) -> None:
    cut = pieces(data, size_bytes)
    numels = [piece.numel() for piece in cut]
    arrivals = [Arrivals(links, child, numels, data.dtype) for child in reversed(place.children)]  # the nearest first
    leaving = []
    for piece in cut:
        for arrival in arrivals:
            arrival.add_to(piece)
        if place.parent is not None:
            leaving.append(links.send(piece, place.parent))
    for transfer in leaving:
        transfer.wait()


ALGORITHMS = {"tree": _tree, "chain": _chain}
