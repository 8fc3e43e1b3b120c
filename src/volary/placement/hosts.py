"""Engine `hosts`: machines reached by ssh, where `python -m volary.machine_agent` starts the processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.placement._base import Place, whole

_LAUNCHER = "volary.machine_agent"


@dataclass(frozen=True, kw_only=True)
class HostsPlacement:
    """Reads the variables that `volary.machine_agent` sets."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if it started this process. Raises BadInput if a variable is missing or wrong."""
        if "VOLARY_HOSTS_RANK" not in environment:
            return None
        rank, world_size, local_rank, beside, node, attempt = (
            whole(environment, f"VOLARY_{name}", _LAUNCHER)
            for name in ("HOSTS_RANK", "HOSTS_WORLD_SIZE", "HOSTS_LOCAL_RANK", "HOSTS_BESIDE", "HOSTS_NODE", "LIFE")
        )
        return Place(
            launcher="hosts",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            attempt=attempt,
            beside=beside,
        )


PLACEMENT = HostsPlacement
