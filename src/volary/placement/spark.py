"""A task of a barrier stage of Spark's: of `engine: spark`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.placement._base import Place, whole
from volary.run.machine.addresses import address_for_others

_LAUNCHER = "volary.executors"


@dataclass(frozen=True, kw_only=True)
class SparkPlacement:
    """Reads what `volary.executors` sets, as Spark tells a task its number only in the task's own process."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if a task started this process. Raises BadInput if a variable is missing or wrong."""
        if "VOLARY_SPARK_RANK" not in environment:
            return None
        rank, world_size, node, local_rank, beside, own_devices = (
            whole(environment, f"VOLARY_SPARK_{name}", _LAUNCHER)
            for name in ("RANK", "WORLD_SIZE", "NODE", "LOCAL_RANK", "BESIDE", "OWN_DEVICES")
        )
        return Place(
            launcher="spark",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            attempt=0,
            address="127.0.0.1" if beside == world_size else address_for_others(),
            beside=beside,
            own_devices=bool(own_devices),
        )


PLACEMENT = SparkPlacement
