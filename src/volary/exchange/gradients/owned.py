"""Who owns which values of buckets, by the map of who keeps what, and the memory of their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.memory.returned import ReturnedMemory
from volary.comm.sums.owned import Division
from volary.comm.sums.route import Memory
from volary.exchange.gradients.plan import parts_in

FREED_MB = 2.0  # that travel at once, if their memory is returned then: of some chunks it is not yet

if TYPE_CHECKING:
    from volary.comm.sums.hops import Piece
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.plan import BucketPlan
    from volary.sharding.holdings import Holdings


class OwnedValues:
    """The owners of ranges that one rank of each replica keeps; ranks are counted within the replica.

    mesh: of all ranks. once: parameters may be in memory that ranks share, so that a change to them is made once.
    frees: the memory of gradients that are others' is returned once these have the sums. gathers: between machines a
    rank has what others own of parameters only while it computes with it.
    """

    def __init__(self, holdings: Holdings, *, frees: bool, once: bool = True, gathers: bool = False) -> None:
        self.mesh, self.holdings = holdings.mesh, holdings.of_replica
        assert all(len(ranks) == 1 for ranks in self.holdings.keepers.values()), "a range has several keepers"
        self.once, self.gathers = once, gathers
        self.rank, self.ranks, self.frees = self.holdings.rank, self.holdings.mesh.size, frees
        self._returned: dict[tuple[str, ...], ReturnedMemory] = {}  # by what a bucket is of

    def memory(self, plan: BucketPlan) -> Memory:
        """The memory of what ranks contribute to a bucket, in which its sums are made."""
        if not self.frees:
            return Memory.in_place(plan.shape)
        made = self._returned[_names(plan)] = ReturnedMemory(plan.shape)
        return Memory(made.values, made.values)

    def landed(self, chunk: Chunk, plan: BucketPlan) -> None:
        """The sums of a chunk are with their owners."""
        made = self._returned.get(_names(plan))  # none of one that is encoded
        if made is None:
            return
        for rank, pieces in enumerate(self.division(plan, chunk.start, chunk.end).owned):
            for low, high in pieces if rank != self.rank else ():
                made.give_back(chunk.start + low, chunk.start + high)

    def division(self, plan: BucketPlan, start: int, end: int) -> Division:
        """Divide the values from `start` to `end` of a bucket; its head is everybody's."""
        owned: list[list[Piece]] = [[] for _ in range(self.ranks)]
        for at, part in parts_in(plan, start, end):
            for own, (rank,) in self.holdings.within(part):
                low, high = (at - start + value - part.start for value in (own.start, own.end))
                if owned[rank] and owned[rank][-1][1] == low:
                    low, _ = owned[rank].pop()
                owned[rank].append((low, high))
        return Division(max(0, min(plan.head, end) - start), owned)


def _names(plan: BucketPlan) -> tuple[str, ...]:
    return tuple(name for name, _ in plan.parameters)
