"""Volary's own engine `local`: one machine, processes started by the driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.placement._base import Place, text, whole


@dataclass(frozen=True, kw_only=True)
class LocalPlacement:
    """Reads the variables that `volary.engine.local` sets."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if Volary's driver started this process. Raises BadInput if a variable is wrong."""
        if "VOLARY_RANK" not in environment:
            return None
        rank, world_size, attempt = (
            whole(environment, f"VOLARY_{name}", "volary") for name in ("RANK", "WORLD_SIZE", "LIFE")
        )
        return Place(
            launcher="local",
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            node=0,
            attempt=attempt,
            meet=text(environment, "VOLARY_MEET", "volary"),
        )


PLACEMENT = LocalPlacement
