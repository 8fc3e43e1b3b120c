"""Spark: short tasks of jobs learn from each batch, and hand back slices of the summed gradients (BigDL's way)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError
from volary.executors.stage import GATEWAY, REMOTE
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SparkJobs(Partition):
    """Each worker has all parameters, and tasks of a program's Spark compute for it (Dai et al., SoCC 2019)."""

    tasks: int = 2  # into so many a worker's share of a batch is cut, and so many slices its gradients

    needs: ClassVar[Sequence[str]] = ()

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise SettingError(f"tasks is {self.tasks}; accepted: 1 or more")

    @property
    def lacks(self) -> Mapping[str, str]:
        return {}

    def check(self) -> None:
        """Raise SettingError unless a program with an application of Spark starts the run."""
        if not os.environ.keys() & {GATEWAY, REMOTE}:
            raise SettingError(
                "is spark, whose jobs are of an application that a program has, and no such program starts this run; "
                'accepted: volary.spark.train(spark, "session.yaml"), or partition=data'
            )

    @property
    def elsewhere(self) -> str:
        return "short tasks of Spark compute gradients, in fp32 and not compiled"

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(data=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """All of it, which every rank keeps. Raises SettingError for a network with a state between batches."""
        from volary.network.operations.carried_state import carried_states
        from volary.partition.jobs.job import GradientJobs

        if carried_states(module):
            raise SettingError(
                "partition is spark, whose tasks keep nothing, and the network keeps a state from batch to batch; "
                "accepted: partition=data"
            )
        notes = {"route": f"in jobs of Spark, {self.tasks} slices each"}
        holdings = Holdings.replicated(trained_sizes(module), rank, ranks)
        return Part(
            module,
            holdings,
            learn=GradientJobs(module, self.tasks).learn,
            notes=notes,
            at_once="gradients come back from Spark once all of a batch has passed",
        )


PARTITION = SparkJobs
