"""Groups of ranks: who acts for one, and the groups that each rank is in along the axes of a mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product
from typing import Literal

from volary.sharding.samples import SampleShare

LEADER = 0  # the rank, in each group, that acts for it
Axis = Literal["data", "shard", "hybrid", "pipeline", "tensor"]
SAMPLES: Sequence[Axis] = ("data", "shard", "hybrid")  # along which ranks learn from samples of their own
REPLICA: Sequence[Axis] = ("hybrid", "pipeline", "tensor")  # along which ranks compute one replica together


def leads(rank: int) -> bool:
    """Whether `rank` of a group acts for it: decides what all do alike, and writes and says what is to be once."""
    return rank == LEADER


def heir(rank: int, ranks: int) -> int:
    """The rank, of so many, that continues with what `rank` had in an earlier group, which may have been larger."""
    return rank % ranks


@dataclass(frozen=True)
class RankMesh:
    """How many ranks there are along each axis; ranks that follow each other differ along the last one.

    data: replicas, which keep the same and learn from samples of their own. shard: ranks which learn from samples of
    their own, too, and each keep a share of every parameter. hybrid: likewise, and each has parts of some layers, which
    it computes for the samples of all. pipeline: stages of layers. tensor: parts of layers.
    """

    data: int = 1
    shard: int = 1
    hybrid: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(astuple(self))

    @property
    def shares(self) -> int:
        """In how many shares the ranks have each batch."""
        return self.data * self.shard * self.hybrid

    def groups(self, *axes: Axis) -> Sequence[Sequence[int]]:
        """The ranks that differ along no other axis, together: each rank once, to divide a group by."""
        found: dict[tuple[int, ...], list[int]] = {}
        names = [field.name for field in fields(self)]
        for rank, place in enumerate(product(*map(range, astuple(self)))):
            others = tuple(at for name, at in zip(names, place, strict=True) if name not in axes)
            found.setdefault(others, []).append(rank)
        return list(found.values())

    def samples(self, rank: int) -> SampleShare:
        """The share of each batch that `rank` learns from: the same for ranks that hold parts of one replica."""
        return next(SampleShare(ranks.index(rank), len(ranks)) for ranks in self.with_samples if rank in ranks)

    @property
    def with_samples(self) -> Sequence[Sequence[int]]:
        """The ranks that have samples of their own, together: those that learn from the same ones are in different
        groups.
        """
        return self.groups(*SAMPLES)
