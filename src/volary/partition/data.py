"""Data parallel: every worker holds the whole network and a share of each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class WholeNetwork(Partition):
    """Each worker has a replica of all parameters."""

    needs: ClassVar[Sequence[str]] = ()

    @property
    def lacks(self) -> Mapping[str, str]:
        return {}

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(data=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """All of it, which every rank keeps."""
        return Part(module, Holdings.replicated(trained_sizes(module), rank, ranks))


PARTITION = WholeNetwork
