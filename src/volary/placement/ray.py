"""An actor of Ray: of `engine: ray`, or one of the user's own that calls `volary.actors.train`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.placement._base import Place, whole
from volary.run.machine.addresses import address_for_others


@dataclass(frozen=True, kw_only=True)
class RayPlacement:
    """Reads what `volary.actors` sets, as Ray gives its actors no numbers."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if an actor started this process. Raises BadInput if a variable is missing or wrong."""
        if "VOLARY_RAY_RANK" not in environment:
            return None
        rank, world_size, node, local_rank, beside = (
            whole(environment, f"VOLARY_RAY_{name}", "volary.actors")
            for name in ("RANK", "WORLD_SIZE", "NODE", "LOCAL_RANK", "LOCAL_SIZE")
        )
        launch = environment.get("VOLARY_RAY_LAUNCH", "")  # of the user's own actors
        return Place(
            launcher="ray",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=node,
            attempt=0,
            address="127.0.0.1" if beside == world_size else address_for_others(),
            launch=f"ray {launch}" if launch else "",
            beside=beside or None,
            own_devices=True,
        )


PLACEMENT = RayPlacement
