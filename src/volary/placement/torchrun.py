"""torchrun (torchelastic): its agent starts the workers, restarts them, and keeps a store for them to meet at."""

from __future__ import annotations

import os
from dataclasses import dataclass

from volary.placement._base import Place, text, whole


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """Reads what the agent exports; the meeting point is the agent's own store."""

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if a torchrun agent started this process. Raises BadInput if a variable is wrong."""
        if "TORCHELASTIC_RUN_ID" not in environment:
            return None
        rank, world_size, local_rank, node, life = (
            whole(environment, name, "torchrun")
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
        )
        host, port = text(environment, "MASTER_ADDR", "torchrun"), whole(environment, "MASTER_PORT", "torchrun")
        return Place(
            launcher="torchrun",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            life=life,
            meet=f"{host}:{port}",
        )


PLACEMENT = Torchrun
