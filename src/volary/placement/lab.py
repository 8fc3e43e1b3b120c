"""`volary lab`: hosts emulated on one machine; the ranks of all hosts have a file in common to meet at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.placement._base import Place, text, whole


@dataclass(frozen=True, kw_only=True)
class LabPlacement:
    """Reads what `volary.lab.training` sets beside torchrun's variables."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if a lab started this process as a worker. Raises BadInput if a variable is wrong."""
        if "VOLARY_LAB_MEET" not in environment:
            return None
        rank, world_size, local_rank, node = (
            whole(environment, name, "volary lab") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK")
        )
        return Place(
            launcher="lab",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            attempt=0,
            meet=text(environment, "VOLARY_LAB_MEET", "volary lab"),
            address=text(environment, "VOLARY_LAB_ADDRESS", "volary lab"),
            writes_log=True,
            hosts=tuple(text(environment, "VOLARY_LAB_HOSTS", "volary lab").split()),
        )


PLACEMENT = LabPlacement
