"""torchrun (torchelastic): its agent starts the workers, restarts them, and keeps a store for them to meet at."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from volary.placement._base import Place, text, whole


@dataclass(frozen=True, kw_only=True)
class TorchrunPlacement:
    """Reads what the agent exports; the meeting point is the agent's own store."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if a torchrun agent started this process. Raises BadInput if a variable is wrong."""
        if "TORCHELASTIC_RUN_ID" not in environment:
            return None
        rank, world_size, local_rank, node, attempt = (
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
            attempt=attempt,
            meet=f"{host}:{port}",
            beside=whole(environment, "LOCAL_WORLD_SIZE", "torchrun") if "LOCAL_WORLD_SIZE" in environment else None,
            restarts=True,
            launch=f"{text(environment, 'TORCHELASTIC_RUN_ID', 'torchrun')} {_agent()}",
        )


def _agent() -> str:
    """The process that restarts this one: it began the session (in Unix's sense) of this process, as a worker may be
    started through a shell. Named so that none before or after it is taken for it.
    """
    import psutil

    try:
        agent = psutil.Process(psutil.Process(os.getsid(0)).ppid())
        began = _began(agent)
    except (psutil.Error, OSError):  # it has gone, or is outside of this container: nobody restarts this process
        agent = psutil.Process()
        began = _began(agent)
    return f"{socket.gethostname()} {agent.pid} {began}"


def _began(agent: Any) -> str:
    """When a process began: where the system says so in ticks since it booted, by these, as clocks are set."""
    stat = Path(f"/proc/{agent.pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else str(agent.create_time())


PLACEMENT = TorchrunPlacement
