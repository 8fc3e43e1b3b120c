"""Sharded: of each parameter a worker keeps a share, with what the optimiser remembers of it (ZeRO).

Rajbhandari, Rasley, Ruwase & He, "ZeRO: memory optimizations toward training trillion parameter models", SC 2020. Every
worker has all parameters to compute with. The sums of gradients come to the owner of a value alone, who updates it; the
others get a copy just before their next forward reads it. So as many bytes travel as in an all-reduce. With level 3 a
copy lives only while a worker computes with its layer: it is gathered for forward, and again for backward. On one
machine parameters are once in memory that all workers share: each updates its part there, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import nn

UNIT_VALUES = 2**18  # are cut among all workers: less than travels at once, so that all owners get some of each chunk
LINE_VALUES = 16  # a share begins on a cache line, where it has several


@dataclass(frozen=True, kw_only=True)
class Sharded(Partition):
    """Workers keep shares of the optimiser's state (level 1), of gradients (level 2), and of parameters (level 3)."""

    level: Literal[1, 2, 3] = 1  # 1: the optimiser's state is sharded; 2: gradients, too; 3: parameters, too

    needs: ClassVar[Sequence[str]] = ("shares",)

    def __post_init__(self) -> None:
        if self.level not in (1, 2, 3):
            raise SettingError(f"level is {self.level}; accepted: 1, 2 or 3")

    @property
    def lacks(self) -> Mapping[str, str]:
        found = {
            "all sums": "with partition=sharded a worker has the sums of its share of the gradients alone",
            "whole tensors": "with partition=sharded workers update shares of parameters",
        }
        if self.level == 3:
            found["all parameters"] = "with partition.level=3 a worker has a layer's parameters only to compute with it"
        return found

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(shard=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The whole network, of which each rank keeps about as much; the cut depends on sizes and ranks alone."""
        keepers: dict[Range, Sequence[int]] = {}
        for unit in _units(trained_sizes(module)):
            bounds, at = _bounds(sum(part.size for part in unit), ranks), 0
            for part in unit:
                for owner, (low, high) in enumerate(pairwise(bounds)):
                    start, end = max(low - at, 0), min(high - at, part.size)
                    if start < end:
                        keepers[Range(part.name, part.start + start, part.start + end)] = (owner,)
                at += part.size
        holdings = Holdings(rank, self.mesh(ranks), keepers)
        place = f"share {rank + 1} of {ranks}"
        return Part(module, holdings, place=place, frees_gradients=self.level >= 2, frees_parameters=self.level == 3)


def _units(sizes: Mapping[str, int]) -> Iterator[list[Range]]:
    """The units that are cut among all ranks: small neighbours together, of a large parameter blocks; as buckets are
    filled.
    """
    together: list[Range] = []
    for name, size in reversed(list(sizes.items())):
        if sum(part.size for part in together) + size > UNIT_VALUES and together:
            yield together
            together = []
        if size < UNIT_VALUES:
            together.append(Range(name, 0, size))
            continue
        count = -(-size // UNIT_VALUES)
        for start, end in pairwise(size * number // count for number in range(count + 1)):
            yield [Range(name, start, end)]
    if together:
        yield together


def _bounds(values: int, ranks: int) -> list[int]:
    line = LINE_VALUES if values >= LINE_VALUES * LINE_VALUES * ranks else 1
    return [values * number // ranks // line * line for number in range(ranks)] + [values]


PARTITION = Sharded
