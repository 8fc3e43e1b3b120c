"""Tensor: fully connected layers, embeddings, attention heads and recurrent units are cut over workers, each of which
has all samples.

Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053. A layer is cut by columns (outputs) or by rows (inputs). Columns
and then rows, with what is elementwise between, take one sum of values forward and one backward; a column alone is
gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.session.reading.settle import settle
from volary.session.values.size import Size
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import nn

AUTO = "auto"
HOWS = ("column", "row", "heads", "units")


@dataclass(frozen=True, kw_only=True)
class TensorCut(Partition):
    """Workers hold parts of layers, and together one replica of the network."""

    plan: Any = AUTO  # which layers are cut, and how: auto, or by name, as {fc6: column, fc7: row, lstm: units}
    memory: Size | None = None  # of parameters that a worker may hold: auto cuts as few layers as that takes; null: all
    hand_over: Literal["exact", "bf16", "fp16"] = "exact"  # how values and their gradients travel between parts

    needs: ClassVar[Sequence[str]] = ("steps together", "whole gradient")
    lacks: ClassVar[Mapping[str, str]] = {
        "all sums": "with partition=tensor a worker has the gradients of its part of the network alone",
        "whole tensors": "with partition=tensor workers have parts of layers, and update these",
    }

    def __post_init__(self) -> None:
        settle(self)
        if self.plan == AUTO:
            return
        if self.memory is not None:
            raise SettingError(f"memory is {self.memory}, and plan says what is cut; accepted: one of the two")
        if not isinstance(self.plan, Mapping) or not self.plan:
            raise SettingError(
                f"plan is {self.plan!r}; accepted: auto, or column, row, heads or units by layer: {{fc6: column}}"
            )
        for name, how in self.plan.items():
            if how not in HOWS:
                raise SettingError(f"plan of {name} is {how!r}; accepted: {', '.join(HOWS)}")

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(tensor=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The network, of whose layers this rank is to hold its part. Raises SettingError if it cannot be cut so."""
        from volary.partition.cutting.budget import cut_to
        from volary.partition.cutting.bytes_passed import passed_by_tensor, rounds_by_tensor
        from volary.partition.cutting.cut_network import blocks_of, cut_network
        from volary.partition.cutting.plans import plan_for

        mesh, sizes = self.mesh(ranks), trained_sizes(module)
        if ranks == 1:
            return Part(module, Holdings.replicated(sizes, rank, ranks))
        plan = plan_for(module, None if self.plan == AUTO else self.plan, ranks)
        if self.memory is not None:
            plan = cut_to(module, plan, ranks, self.memory.count)
        if not plan.cuts:
            raise SettingError(
                f"partition is tensor, and no layer of the network can be cut over {ranks} workers; accepted: "
                "partition=data, or fewer workers"
            )
        cut = {block: owners for one in plan.cuts for block, owners in blocks_of(module, one, mesh)}
        names = {block.name for block in cut}
        keepers = {Range(name, 0, size): range(ranks) for name, size in sizes.items() if name not in names}
        holdings = Holdings(rank, mesh, keepers, cut)
        return Part(
            module,
            holdings,
            place=f"part {rank + 1} of {ranks} of cut layers",
            passes_bytes=partial(passed_by_tensor, module, plan, ranks, self.hand_over != "exact"),
            rounds=partial(rounds_by_tensor, module, plan),
            join=partial(cut_network, module, plan, holdings, self.hand_over if self.hand_over != "exact" else ""),
        )


PARTITION = TensorCut
