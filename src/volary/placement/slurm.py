"""Slurm: a task of `srun`, in whose allocation other launchers may run."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import ClassVar

from volary.errors import BadInput
from volary.placement._base import Place, text, whole
from volary.run.machine.addresses import address_towards

_LAUNCHER = "srun"
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


@dataclass(frozen=True, kw_only=True)
class SlurmPlacement:
    """Reads what slurmstepd exports; the tasks of one step find their run by the step's number."""

    allocates: ClassVar[bool] = True

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if srun started this process. Raises BadInput if a variable is missing or wrong."""
        if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:
            return None  # a batch script has a number, too, but is no task
        rank, world_size, local_rank, node, nodes = (
            whole(environment, name, _LAUNCHER)
            for name in (
                "SLURM_PROCID",
                "SLURM_STEP_NUM_TASKS",
                "SLURM_LOCALID",
                "SLURM_NODEID",
                "SLURM_STEP_NUM_NODES",
            )
        )
        launch_node = text(environment, "SLURM_LAUNCH_NODE_IPADDR", _LAUNCHER)
        job, step = (whole(environment, name, _LAUNCHER) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        return Place(
            launcher="slurm",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            attempt=0,
            address="127.0.0.1" if nodes == 1 else address_towards(launch_node),
            launch=f"slurm {job}.{step}",
            restarts=True,  # a job that is requeued keeps its number
            own_devices="SLURM_GPUS_PER_TASK" in environment,
            beside=_tasks(text(environment, "SLURM_STEP_TASKS_PER_NODE", _LAUNCHER), node),
        )


def _tasks(tasks: str, node: int) -> int:
    """The tasks on a node, of `2(x3),1`: three nodes with two, one with one. Raises BadInput."""
    each: list[int] = []
    for part in tasks.split(","):
        if (found := _TASKS.fullmatch(part)) is None:
            break
        each += [int(found[1])] * int(found[2] or 1)
    if node >= len(each):
        raise BadInput(f"srun started this process, but its SLURM_STEP_TASKS_PER_NODE is {tasks!r} for node {node}")
    return each[node]


PLACEMENT = SlurmPlacement
