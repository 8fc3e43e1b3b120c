"""Pipeline: each worker has some of the layers, and a batch passes them in micro-batches.

Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019; others with their schedules in
`volary.partition.pipelining.schedules`. A worker holds and updates its layers alone; values travel forward where stages
meet, and their gradients back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import Tensor, nn

AUTO = "auto"
EACH = 4  # micro-batches for each worker, if settings leave it open: less than a fifth of the time is lost


@dataclass(frozen=True, kw_only=True)
class PipelineStages(Partition):
    """Workers hold stages of layers, and together one replica of the network."""

    stages: Any = AUTO  # auto: as even as can be; or the layers with which the stages after the first begin
    micro_batches: Any = AUTO  # how many follow each other of each batch; auto: 4 for each worker
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero_bubble"] = "1f1b"  # in which order they pass the stages
    hand_over: Literal["exact", "bf16", "fp16"] = "exact"  # how values and their gradients travel between stages

    needs: ClassVar[Sequence[str]] = ("steps together", "whole gradient")
    lacks: ClassVar[Mapping[str, str]] = {
        "all sums": "with partition=pipeline a worker has the gradients of its stages alone"
    }

    def __post_init__(self) -> None:
        names = [] if self.stages == AUTO else self.stages
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise SettingError(f"stages is {self.stages!r}; accepted: auto, or names of layers: [conv3, fc6]")
        if len(set(names)) < len(names):
            raise SettingError(f"stages is {list(names)}, which names a layer twice; accepted: different layers")
        if self.micro_batches != AUTO and not (isinstance(self.micro_batches, int) and self.micro_batches > 0):
            raise SettingError(f"micro_batches is {self.micro_batches!r}; accepted: auto, or a number from 1")

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(pipeline=ranks)

    def parts(self, ranks: int) -> int:
        return 1 if self.micro_batches == AUTO else int(self.micro_batches)

    def planned(self, module: nn.Module, ranks: int, inputs: Callable[[int], Tensor]) -> Mapping[str, Any]:
        """The layers with which stages begin, by what a micro-batch costs in each. Raises SettingError."""
        from volary.partition.pipelining.chain import chain_of
        from volary.partition.pipelining.plan import StagePlan, counted_costs
        from volary.partition.pipelining.schedules import SCHEDULES

        stages = ranks * SCHEDULES[self.schedule].stages_each
        if self.stages != AUTO or stages == 1:
            return {}
        chain = chain_of(module)
        costs = counted_costs(chain, inputs(self._micro_batches(ranks)))
        return {"stages": StagePlan.by_cost(chain, costs, stages).names}

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The network, of which this rank is to hold its stages. Raises SettingError if it cannot be cut so."""
        from volary.naming import named_buffers
        from volary.partition.pipelining.chain import chain_of
        from volary.partition.pipelining.plan import StagePlan, rough_costs
        from volary.partition.pipelining.schedules import SCHEDULES, timetable
        from volary.partition.pipelining.staged_network import StagedNetwork

        chain, schedule = chain_of(module), SCHEDULES[self.schedule]
        stages = ranks * schedule.stages_each
        if self.stages == AUTO:
            plan = StagePlan.by_cost(chain, rough_costs(chain), stages)
        else:
            plan = StagePlan.by_names(chain, self.stages, stages)
        owners = plan.owners(ranks)
        keepers = {Range(name, 0, size): owners[name] for name, size in trained_sizes(module).items()}
        buffers = {name: owners[name] for name, _ in named_buffers(module)}
        micro_batches = self._micro_batches(ranks)
        narrow = self.hand_over if self.hand_over != "exact" else ""
        network = StagedNetwork(plan, schedule, micro_batches, narrow)
        table = timetable(schedule, ranks, micro_batches)
        own = [str(number + 1) for number in range(rank, stages, ranks)]
        notes = {
            "route": f"between stages, of which the next ones begin with {', '.join(plan.names)}",
            "update": f"once {micro_batches} micro-batches have passed; workers wait {table.bubble:.0%} or more",
        }
        return Part(
            module,
            Holdings(rank, self.mesh(ranks), keepers, buffers=buffers),
            passes_bytes=partial(plan.passed_bytes, ranks, 2 if narrow else 4),
            pieces=micro_batches,
            idle=table.bubble,
            alive=table.alive,
            join=network.join,
            learn=network.learn,
            place=f"stage{'s' * (len(own) > 1)} {' and '.join(own)} of {stages}",
            notes=notes if plan.names else {},
            at_once="stages add up their gradients until all micro-batches have passed",
        )

    def _micro_batches(self, ranks: int) -> int:
        return EACH * ranks if self.micro_batches == AUTO else int(self.micro_batches)


PARTITION = PipelineStages
