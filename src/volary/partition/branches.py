"""Branches: layers that some workers alone have; all have the rest, and all have all samples.

Lee, Purushwalkam, Cogswell, Crandall & Batra, "Why M heads are better than one: training a diverse ensemble of deep
networks" (MPI-Caffe), arXiv:1511.06314, 2015, spread the branches of a network over processes so. What a branch gives
is broadcast to the workers that do not have it, and so are the gradients of what it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import nn

_ACCEPTED = "workers by layers: {left: [0], right: [1, 2]}, where left may be a pattern, as left.*"


@dataclass(frozen=True, kw_only=True)
class WorkerBranches(Partition):
    """Workers have some branches of the network each, and all the rest of it."""

    on: Any  # by layer or block, or by a pattern of their names, the workers that have it: {left: [0], right: [1, 2]}

    lacks: ClassVar[Mapping[str, str]] = {
        "all sums": "with partition=branches a worker has the gradients of its part of the network alone",
        "own loop": "with partition=branches a session says which worker has what; your own code says so by layers "
        "that communicate, OnWorkers and Broadcast, Gather or Reduce of volary.network.blocks",
    }

    def __post_init__(self) -> None:
        if not isinstance(self.on, Mapping) or not self.on:
            raise SettingError(f"on is {self.on!r}; accepted: {_ACCEPTED}")
        for name, workers in self.on.items():
            known = isinstance(workers, Sequence) and not isinstance(workers, str) and len(workers) > 0
            if not known or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in workers):
                raise SettingError(f"on gives {name} the workers {workers!r}; accepted: {_ACCEPTED}")
            if len(set(workers)) < len(workers):
                raise SettingError(f"on gives {name} a worker twice: {list(workers)}; accepted: each once")

    @property
    def needs(self) -> Sequence[str]:
        """Servers have what one worker pushes: of workers that have the same branch each would."""
        several = any(len(workers) > 1 for workers in self.on.values())
        return ("steps together", "whole gradient", *(("peers",) if several else ()))

    def mesh(self, ranks: int) -> RankMesh:
        """Raises SettingError for workers beyond those that there are."""
        for name, workers in self.on.items():
            if ranks > 1 and max(workers) >= ranks:
                raise SettingError(
                    f"on gives {name} worker {max(workers)}, and there are {ranks}; accepted: 0 to {ranks - 1}"
                )
        return RankMesh(tensor=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The network, of which this rank is to have its branches. Raises SettingError if it has no such layers."""
        from volary.partition.branching.placement import blocks_of, placed
        from volary.partition.branching.worker_layer import leave_branches

        mesh, sizes = self.mesh(ranks), trained_sizes(module)
        if ranks == 1:
            return Part(module, Holdings.replicated(sizes, rank, ranks))
        branches = placed(module, self.on, ranks)
        cut = dict(blocks_of(module, branches, ranks))
        names = {block.name for block in cut}
        keepers = {Range(name, 0, size): range(ranks) for name, size in sizes.items() if name not in names}
        holdings = Holdings(rank, mesh, keepers, cut)
        own = [name for name, workers in branches.items() if rank in workers]
        return Part(
            module,
            holdings,
            place=f"branches {', '.join(own)}" if own else "no branch",
            join=partial(leave_branches, module, branches, holdings),
        )


PARTITION = WorkerBranches
