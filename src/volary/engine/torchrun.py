"""torch's elastic agent: it starts the workers of this machine, watches them, and ends all of them if one fails."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.launchers.launched import Launched, told
from volary.engine.local import LOOPBACK, LocalEngine

AGENT = [sys.executable, "-m", "volary.agent"]


@dataclass(frozen=True, kw_only=True)
class TorchrunEngine:
    """The agent of `torchrun`, with the workers of one machine. It has no store, and opens no socket."""

    pin: bool = True  # each worker stays on its own share of the cores
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)

    def check(self, workers: int) -> str | None:
        """As for workers that are started without it: the agent takes what a process with torch takes."""
        return LocalEngine().check(workers + 1)

    def warnings(self, workers: int) -> list[str]:
        """As for workers that are started without it."""
        return LocalEngine().warnings(workers)

    def host(self) -> str:
        """All are on this machine."""
        return LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The agent's, for workers."""
        return [*AGENT, str(launch.count), *launch.command] if launch.role == "worker" else list(launch.command)

    def prepare(self, workers: int) -> None:
        """Nothing: the launcher starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Workers are the agent's; servers, which must not end with them, are started without it."""
        if launch.role == "server":
            return LocalEngine().launch(launch)
        return Launched("torchrun", launch, self.command(launch), told(launch, pin=self.pin))


ENGINE = TorchrunEngine
