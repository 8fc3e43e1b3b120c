"""Collectives of our own, over point to point links: in place, pipelined, with no byte too many on a link.

    broadcast        one rank's values to all
    reduce           the sum of all to one rank
    reduce_scatter   to each rank the sum of its share (`share`)
    all_gather       everybody's share to all

A collective is called alike on all ranks, by the thread that uses their links. It returns when this rank's part is
done, and raises PeerLost if a peer went away. What passes between two nodes of the topology passes their link once.
Each file lists its ways in `ALGORITHMS`; without a wish the size decides. Guide: docs/collectives.md
"""

from volary.comm.collectives.all_gather import all_gather
from volary.comm.collectives.broadcast import broadcast
from volary.comm.collectives.reduce import reduce
from volary.comm.collectives.reduce_scatter import reduce_scatter
from volary.comm.collectives.shares import share

__all__ = ["all_gather", "broadcast", "reduce", "reduce_scatter", "share"]
