"""What every engine does: Volary starts it, it starts the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Launch:
    """What to start. command: a worker's command line. job: what it does, as "module:function" (train/process.py).

    meet: host:port of the run's server, which proves to be of `server_life`. life: of this run. first_rank: of these
    workers, above those who are there.
    """

    directory: RunDirectory
    command: Sequence[str]
    job: str
    workers: int
    meet: str
    server_life: str
    life: int
    first_rank: int = 0

    @property
    def world_size(self) -> int:
        """Of all workers, with those that are there already."""
        return self.first_rank + self.workers


@dataclass(frozen=True)
class Exited:
    """A worker's process has ended. code: its status. signal: the number of the signal that ended it, or None.

    out_of_memory: whether it was most likely the kernel that ended it, to regain memory.
    """

    rank: int
    code: int
    signal: int | None
    out_of_memory: bool = False


class Handle(Protocol):
    """Workers that an engine has started."""

    def pids(self) -> dict[int, int]:
        """Process number by rank, of those on this machine."""
        ...

    def events(self) -> list[Exited]:
        """What happened since the last call; never waits."""
        ...

    def stop(self, grace_s: float) -> None:
        """End what still runs: ask, then kill after `grace_s`; returns when nothing is left."""
        ...


class Engine(Protocol):
    """Settings of an engine."""

    def check(self, workers: int) -> str | None:
        """A sentence why it cannot start so many workers here; None if it can."""
        ...

    def warnings(self, workers: int) -> list[str]:
        """What is better known before so many workers are started here; each a sentence."""
        ...

    def launch(self, launch: Launch) -> Handle:
        """Start the workers. Raises VolaryError if the engine itself cannot start."""
        ...
