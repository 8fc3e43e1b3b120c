"""Processes on this machine that whoever started them also watches and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from volary.engine import _memory
from volary.engine._base import Ended, Exited

KILLED_WITHIN_S = 5.0  # only a process that hangs in the kernel, on a dead disk, takes longer


class Processes:
    """Processes of one kind, by number: of workers their ranks. As a Handle of workers, see `Handle`."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._told: set[int] = set()
        self._memory: dict[int, tuple[Path | None, int]] = {}  # who counts those that ran out of it, and how many had

    def start(self, number: int, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        """Start one more; what it prints goes to its log. It dies with us where it asks for that (volary.worker)."""
        with log.open("ab") as output:
            self._processes[number] = subprocess.Popen(
                command,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is the driver's to answer
                start_new_session=True,
            )
        counter = _memory.counter(self._processes[number].pid)
        self._memory[number] = counter, _memory.kills(counter)

    def pids(self) -> dict[int, int]:
        """Process by number."""
        return {number: process.pid for number, process in self._processes.items()}

    def children(self) -> list[int]:
        """All of them."""
        return list(self.pids().values())

    def running(self) -> set[int]:
        """Those whose end `events` has not told."""
        return self._processes.keys() - self._told

    def ended(self) -> Ended | None:
        """Nobody stands between them and us."""
        return None

    def events(self) -> list[Exited]:
        """Which have ended since the last call; never waits."""
        found = []
        for number, process in self._processes.items():
            code = process.poll()
            if code is not None and number not in self._told:
                self._told.add(number)
                counter, before = self._memory[number]
                starved = code == -signal.SIGKILL and _memory.kills(counter) > before
                found.append(Exited(number, code, -code if code < 0 else None, starved))
        return found

    def ask_to_end(self) -> None:
        """Send all of them a termination."""
        for process in self._processes.values():
            process.terminate()

    def stop(self, grace_s: float) -> None:
        """End what still runs: ask, then kill after `grace_s`; returns when nothing is left."""
        if grace_s:
            self.ask_to_end()
            _wait(self._processes.values(), grace_s)
        for process in self._processes.values():
            # also what it started itself: it leads a session of its own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _wait(self._processes.values(), KILLED_WITHIN_S)


def _wait(processes: Iterable[subprocess.Popen[bytes]], at_most_s: float) -> None:
    deadline = time.monotonic() + at_most_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
