"""Processes on this machine that whoever started them also watches and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from volary.engine._base import Ended, Exited
from volary.engine.processes import memory
from volary.engine.processes.adopted import Adopted
from volary.engine.processes.fork_server import ForkOrder, ForkServer
from volary.run.machine.descendants import KILLED_WITHIN_S

Child = subprocess.Popen[bytes] | Adopted


@dataclass(frozen=True)
class NewProcess:
    """A process to be started. variables: beside our own. log: for what it prints."""

    command: Sequence[str]
    variables: Mapping[str, str]
    log: Path


class Processes:
    """Processes of one kind, by number: of workers their ranks. As a Handle of workers, see `Handle`."""

    def __init__(self) -> None:
        self._processes: dict[int, Child] = {}
        self._reported: set[int] = set()
        self._memory: dict[int, tuple[Path | None, int]] = {}  # who counts those that ran out of it, and how many had
        self._ordered: dict[int, NewProcess] = {}  # of the fork server, which may have to import first
        self._order: ForkOrder | None = None

    def start(self, number: int, one: NewProcess) -> None:
        """Start one more; what it prints goes to its log. It dies with us where it asks for that (volary.worker)."""
        with one.log.open("ab") as output:
            process = subprocess.Popen(
                one.command,
                env=os.environ | one.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is the driver's to answer
                start_new_session=True,
            )
        self._watch(number, process)

    def fork(self, server: ForkServer, starts: Mapping[int, NewProcess]) -> None:
        """Have processes of one Python module forked, once the server can: the same as `start` of each."""
        for one in starts.values():
            one.log.open("ab").close()  # if it cannot be written, that is said now
        _, _, module, *arguments = next(iter(starts.values())).command
        asked = [{"variables": dict(one.variables), "log": str(one.log.absolute())} for one in starts.values()]
        self._order = server.order(module, arguments, asked)
        self._ordered = dict(starts)
        self._take_forked()

    def _watch(self, number: int, process: Child) -> None:
        self._processes[number] = process
        counter = memory.counter(process.pid)
        self._memory[number] = counter, memory.kills(counter)

    def _take_forked(self) -> None:
        """Take over what was ordered and has been forked by now; what cannot be forked is started.

        Raises OSError if the system has no room for so many processes.
        """
        order = self._order
        if order is not None:
            order.server.look()
        if order is not None and not order.answered:
            return
        ordered, self._ordered, self._order = self._ordered, {}, None
        if order is not None and order.errno:
            raise OSError(order.errno, os.strerror(order.errno))
        if order is not None and order.pids is not None:
            for number, pid in zip(ordered, order.pids, strict=True):
                self._watch(number, Adopted(pid))
            return
        for number, one in ordered.items():
            self.start(number, one)

    def _forget_ordered(self) -> None:
        """Forget processes that are ordered and not there yet: nobody wants them any more."""
        if self._order is not None:
            self._order.server.close()
            if self._order.pids is None:
                self._ordered, self._order = {}, None
        self._take_forked()

    def pids(self) -> dict[int, int]:
        """The process ids by number of the process."""
        self._take_forked()
        return {number: process.pid for number, process in self._processes.items()}

    def children(self) -> list[int]:
        """The process ids of all processes that are this one's children."""
        return list(self.pids().values())

    def hosts(self) -> dict[int, str]:
        """This machine, for all processes."""
        return dict.fromkeys(self._processes.keys() | self._ordered.keys(), socket.gethostname())

    def running(self) -> set[int]:
        """The processes whose end `events` has not reported."""
        return (self._processes.keys() | self._ordered.keys()) - self._reported

    def ended(self) -> Ended | None:
        """None: no launcher stands between the processes and us."""
        return None

    def events(self) -> list[Exited]:
        """The processes that have ended since the last call; never waits."""
        self._take_forked()
        found = []
        for number, process in self._processes.items():
            code = process.poll()
            if code is not None and number not in self._reported:
                self._reported.add(number)
                counter, before = self._memory[number]
                starved = code == -signal.SIGKILL and memory.kills(counter) > before
                found.append(Exited(number, code, -code if code < 0 else None, starved))
        return found

    def ask_to_end(self) -> None:
        """Send all of them a termination."""
        self._forget_ordered()
        for process in self._processes.values():
            process.terminate()

    def kill(self, number: int) -> None:
        """Kill one that runs, and what it has started."""
        if number in self._processes and number not in self._reported:
            _kill(self._processes[number])

    def stop(self, grace_s: float) -> None:
        """End what still runs: ask, then kill after `grace_s`; returns when nothing is left."""
        self._forget_ordered()
        if grace_s:
            self.ask_to_end()
            _wait(self._processes.values(), grace_s)
        for process in self._processes.values():
            _kill(process)
        _wait(self._processes.values(), KILLED_WITHIN_S)


def _kill(process: Child) -> None:
    """Kill it and what it started itself: it leads a session of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _wait(processes: Iterable[Child], at_most_s: float) -> None:
    deadline = time.monotonic() + at_most_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
