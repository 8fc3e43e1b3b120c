"""The protocol of engines: Volary starts the engine, it starts the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from volary.errors import SettingError
from volary.run.launch.assignment import Assignment
from volary.run.launch.meeting import announce

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.run.launch.meeting import Meeting

Role = Literal["worker", "server"]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Processes of one role that are to be started: `count` of them.

    role: `worker`, or `server`, which keeps parameters. command: of each. first: the number of the first of them; the
    numbers of workers are their ranks, and those that join a run follow those that are there. meeting: where they find
    the run's server. job: what a worker does (run/launch/assignment.py). beside: processes of the other role.
    interface: `strategy.interface`. spares: how many of the workers, the last ones, wait for the place of a lost one.
    """

    role: Role
    directory: RunDirectory
    command: Sequence[str]
    count: int
    meeting: Meeting
    first: int = 0
    job: str = ""
    beside: int = 0
    interface: str = ""
    spares: int = 0

    @property
    def numbers(self) -> range:
        """The numbers of the processes to start."""
        return range(self.first, self.first + self.count)

    def log(self, number: int) -> Path:
        """The file to which process `number` prints."""
        return self.directory.log(number) if self.role == "worker" else self.directory.server_log(number)

    def variables(self) -> dict[str, str]:
        """The environment variables of all of them, without their numbers."""
        return self._assignment().variables()

    def variables_elsewhere(self) -> dict[str, str]:
        """The same for machines that need not see the run's directory: with the run's key, for no other eyes.

        Leaves in the directory what they know it by, if they do see it. Raises RunError if that cannot be written.
        """
        announce(self.directory, self.meeting)
        return replace(self._assignment(), key=self.directory.key(), folder=Path.cwd()).variables()

    def _assignment(self) -> Assignment:
        return Assignment(directory=self.directory.path, meeting=self.meeting, job=self.job, interface=self.interface)


@dataclass(frozen=True)
class Exited:
    """A process has ended. rank: a worker's; of a server its number. code: its status.

    signal: the number of the signal that ended it, or None. out_of_memory: whether it was most likely the kernel that
    ended it, to regain memory.
    """

    rank: int
    code: int
    signal: int | None
    out_of_memory: bool = False


@dataclass(frozen=True)
class Ended:
    """A launcher that started the processes has ended by itself, and what it started ends with it.

    launcher: its name. pid, code, signal: as of any process. log: what it printed, and they as long as they had no log.
    numbers: of those that it had started; None: all.
    """

    launcher: str
    pid: int
    code: int
    signal: int | None
    log: Path
    numbers: frozenset[int] | None = None


def require_restarts(max_restarts: int) -> None:
    """Raise SettingError if that is no number of restarts."""
    if max_restarts < 0:
        raise SettingError(f"max_restarts is {max_restarts}; accepted: a whole number, 0 or more")


class Handle(Protocol):
    """Processes that an engine has started."""

    def pids(self) -> dict[int, int]:
        """Process by number, of those on this machine that the engine knows."""
        ...

    def children(self) -> list[int]:
        """Processes that the driver has started itself: should it be killed, they must not outlive it for long."""
        ...

    def hosts(self) -> Mapping[int, str]:
        """The hosts where processes are, or are to be, by number, as far as they are known."""
        ...

    def running(self) -> set[int]:
        """The numbers of those that may still run, by what `events` and `ended` have said so far."""
        ...

    def events(self) -> list[Exited]:
        """The exits since the last call; never waits."""
        ...

    def ended(self) -> Ended | None:
        """How the launcher has ended, if there is one, and it did so by itself."""
        ...

    def ask_to_end(self) -> None:
        """Send all of them a termination."""
        ...

    def kill(self, number: int) -> None:
        """Kill one that is given up, and what it has started; one that only a launcher knows ends itself."""
        ...

    def stop(self, grace_s: float) -> None:
        """End what still runs: ask, then kill after `grace_s`; returns when nothing is left."""
        ...


class Engine(Protocol):
    """Settings of an engine, and how it starts the processes of a run."""

    @property
    def max_restarts(self) -> int:
        """How often a run is resumed by itself, each time that a process is lost."""
        ...

    def check(self, workers: int) -> str | None:
        """A sentence why it cannot start so many workers here; None if it can."""
        ...

    def warnings(self, workers: int) -> list[str]:
        """Sentences that are better known before so many workers are started here."""
        ...

    def host(self) -> str:
        """The address of this machine by which its processes reach the run's server, which listens there alone."""
        ...

    def command(self, launch: Launch) -> list[str]:
        """The command line that `launch` runs: the launcher's, or, without one, that of each process."""
        ...

    def prepare(self, workers: int) -> None:
        """Begin with what takes its time before so many can be started, if there is such a thing; returns at once."""
        ...

    def launch(self, launch: Launch) -> Handle:
        """Start the processes. Raises VolaryError if the engine itself cannot start."""
        ...
