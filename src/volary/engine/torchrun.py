"""torch's elastic agent, one a machine: it starts the workers there, watches them, and ends all if one fails."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.hosts import HostsEngine, require_machines
from volary.engine.launchers.launched import Launched, variables_for
from volary.engine.local import LOOPBACK, LocalEngine

AGENT = [sys.executable, "-m", "volary.elastic_agent"]


@dataclass(frozen=True, kw_only=True)
class TorchrunEngine:
    """The agent of `torchrun`: of this machine, or one on each of several, which ssh reaches. It opens no socket."""

    nodes: tuple[str, ...] = ()  # machines, each as ssh has it, with its workers: alpha:4, user@beta:4; none: this one
    pin: bool = True  # each worker stays on its own share of the cores
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        require_machines("nodes", self.nodes)

    def check(self, workers: int) -> str | None:
        """Check as for workers without an agent: it takes what a process with torch takes."""
        if self.nodes:
            return self._machines.check(workers)
        return LocalEngine().check(workers + 1)

    def warnings(self, workers: int) -> list[str]:
        """Warnings as for workers without an agent."""
        return self._machines.warnings(workers) if self.nodes else LocalEngine().warnings(workers)

    def host(self) -> str:
        """Loopback on one machine; else this machine's address on the route to the others."""
        return self._machines.host() if self.nodes else LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The agent's, for workers; with several machines the ssh to the first of them."""
        if self.nodes:
            return self._machines.command(launch)
        return [*AGENT, str(launch.count), *launch.command] if launch.role == "worker" else list(launch.command)

    def prepare(self, workers: int) -> None:
        """Do nothing: the launcher starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Workers are the agent's; servers, which must not end with them, are started without it."""
        if self.nodes:
            return self._machines.launch(launch, launcher=AGENT if launch.role == "worker" else ())
        if launch.role == "server":
            return LocalEngine().launch(launch)
        return Launched("torchrun", launch, self.command(launch), variables_for(launch, pin=self.pin))

    @property
    def _machines(self) -> HostsEngine:
        return HostsEngine(hosts=self.nodes, pin=self.pin)


ENGINE = TorchrunEngine
