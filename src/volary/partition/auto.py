"""Auto: the partition that is predicted to be the quickest, of those that fit into `strategy.memory`.

Rank 0 predicts a step of each partition that the session can have, once the network has run on two samples, and all
take its choice. It goes by counts of operations and bytes, so it is the same on every machine, and when a run resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings

if TYPE_CHECKING:
    from torch import nn

LINK_MBIT = 8000.0  # about what processes of one machine pass to each other


@dataclass(frozen=True, kw_only=True)
class Chosen(Partition):
    """The quickest partition that fits; until it is chosen, each worker has a replica."""

    link_mbit: float = LINK_MBIT  # megabits a second that a worker's link carries; the default is for one machine

    needs: ClassVar[Sequence[str]] = ("peers",)
    lacks: ClassVar[Mapping[str, str]] = {
        "own loop": "a pass over samples decides, and a loop of your own has some only once workers hold their parts"
    }
    chooses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.link_mbit > 0:
            raise SettingError(f"link_mbit is {self.link_mbit}; accepted: above 0")

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(data=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """All of the network, as with `data`: nothing has been chosen yet."""
        return Part(module, Holdings.replicated(trained_sizes(module), rank, ranks))


PARTITION = Chosen
