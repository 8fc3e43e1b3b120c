"""Processes that a launcher has started: the launcher is our child, and only connections show how they end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from volary.comm.groups.confined import Confined
from volary.engine._base import Ended, Exited, Launch
from volary.engine.local import LOOPBACK
from volary.engine.processes.processes import NewProcess, Processes
from volary.run.launch.assignment import FOLDER, KEY
from volary.run.machine.descendants import below, end

FIRST, PIN = "VOLARY_FIRST", "VOLARY_PIN"
_ONLY = 0
CLEAN_UP_S = 2.0  # for the launcher to end its processes, here and on other machines, and what it keeps on disks


def variables_for(launch: Launch, *, pin: bool) -> dict[str, str]:
    """The variables of processes that a launcher numbers, from 0, and that take their share of the cores themselves.

    pin: they stay on it. Where others reach the driver, too, they may be on machines that do not see the run's
    directory. Raises RunError if what these need cannot be written.
    """
    ours = launch.variables_elsewhere() if _is_reached(launch) else launch.variables()
    return ours | {FIRST: str(launch.first), PIN: str(int(pin))}


def names_for(launch: Launch) -> list[str]:
    """The names of the variables of `told`."""
    return [*launch.variables(), *((KEY, FOLDER) if _is_reached(launch) else ()), FIRST, PIN]


def _is_reached(launch: Launch) -> bool:
    return launch.meeting.host != LOOPBACK


class Launched:
    """The processes of a launch, and their launcher.

    name: of the launcher, for messages. command: the launcher's. variables: what the processes find in their
    environment, which the launcher hands on. leaves: what is on the disk if a launcher of this number is killed.
    ask: tells the processes to end, if the launcher cannot. confined: nobody on another machine has to reach it.
    """

    def __init__(
        self,
        name: str,
        launch: Launch,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        leaves: Callable[[int], Sequence[Path]] = lambda _: (),
        ask: Callable[[], None] | None = None,
        confined: bool = False,
    ) -> None:
        self._name, self._launch, self._leaves = name, launch, leaves
        self._ask = ask
        self._log = launch.directory.logs / f"{name}-{launch.role}s.log"
        self._launcher = Processes()
        self._stopping = False
        self._ended: Ended | None = None
        self._launcher.start(_ONLY, NewProcess(command, variables, self._log))
        self._pid = self._launcher.pids()[_ONLY]
        self._sockets = Confined(self._pid) if confined else None

    def pids(self) -> dict[int, int]:
        """No numbers: only the launcher knows the processes."""
        return {}

    def children(self) -> list[int]:
        """The launcher: its processes end with it."""
        return [self._pid]

    def hosts(self) -> dict[int, str]:
        """No hosts: the launcher decides where processes are."""
        return {}

    def running(self) -> set[int]:
        """All processes, until the launcher has ended."""
        return set() if self.ended() else set(self._launch.numbers)

    def events(self) -> list[Exited]:
        """No exits: only its connection shows how a process ends."""
        if self._sockets is not None:
            self._sockets.look()
        return []

    def ended(self) -> Ended | None:
        """How the launcher has ended, if it has, and not because it was stopped."""
        if self._ended is None and not self._stopping:
            for gone in self._launcher.events():
                self._ended = Ended(self._name, self._pid, gone.code, gone.signal, self._log)
        return self._ended

    def ask_to_end(self) -> None:
        """Tell the launcher, which tells them, or them."""
        (self._ask or self._launcher.ask_to_end)()

    def kill(self, number: int) -> None:
        """Do nothing: only the launcher knows the process."""

    def stop(self, grace_s: float) -> None:
        """End the launcher, and what it has left."""
        self.ended()
        self._stopping = True
        started = [*below(self._pid), *_of_session(self._pid)]
        self._launcher.stop(grace_s or CLEAN_UP_S)
        end(started)
        for path in self._leaves(self._pid):
            shutil.rmtree(path, ignore_errors=True)


def _of_session(leader: int) -> list[object]:
    """The launcher's processes that are still in its session: if it was killed, nobody else knows of them."""
    import psutil  # not needed by `volary --help`

    found: list[object] = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if process.pid != leader and os.getsid(process.pid) == leader:
                found.append(process)
    return found
