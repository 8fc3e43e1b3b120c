"""Processes on other machines: an ssh connection to each, `volary.machine_agent` is told over it what to do there."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from volary.engine._base import Ended, Exited
from volary.engine.remote.messages import END, KILL, RemoteExited, RemoteLaunch, RemoteStarted

GONE_WITHIN_S = 3.0  # told to kill, a machine that is there has done so
_PIECE_BYTES = 2**20


class SshConnection:
    """One machine. name: for messages. command: ssh's. brought: an archive that goes there first."""

    def __init__(
        self, name: str, command: Sequence[str], order: RemoteLaunch, log: Path, brought: IO[bytes] | None
    ) -> None:
        self.name, self.log, self.numbers = name, log, set(order.numbers)
        self.gone: dict[int, Exited] = {}
        self.started = False
        self._brought = brought
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with log.open("ab") as errors:
            self._ssh = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C in the terminal is the driver's to answer
                start_new_session=True,
            )
        self.send(msgspec.json.encode(order) + b"\n")
        self._threads = [
            threading.Thread(target=work, name=f"ssh {name}", daemon=True) for work in (self._speak, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process id of the ssh client."""
        return self._ssh.pid

    @property
    def code(self) -> int | None:
        """The status with which ssh ended, once all of its output is read; None while it runs."""
        code = self._ssh.poll()
        return None if self._threads[1].is_alive() else code

    def send(self, word: bytes) -> None:
        """Send it, when all before has been sent."""
        self._words.put(word)

    def wait(self, at_most_s: float) -> None:
        """Wait until ssh has ended, for `at_most_s` at most."""
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(max(0.0, at_most_s))

    def close(self) -> None:
        """End the ssh client, and leave no file of it on this machine."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ssh.wait()
        self._words.put(None)
        for thread in self._threads:
            thread.join()

    def _speak(self) -> None:
        assert self._ssh.stdin is not None
        with suppress(OSError), self._ssh.stdin as pipe:
            first = True
            while (word := self._words.get()) is not None:
                pipe.write(word)
                if first and self._brought is not None:
                    at, first = 0, False
                    while piece := os.pread(self._brought.fileno(), _PIECE_BYTES, at):
                        pipe.write(piece)
                        at += len(piece)
                pipe.flush()

    def _listen(self) -> None:
        assert self._ssh.stdout is not None
        with self._ssh.stdout as pipe:
            for line in pipe:
                try:
                    event = msgspec.json.decode(line, type=RemoteStarted | RemoteExited)
                except msgspec.MsgspecError:  # a login script's greeting
                    continue
                if isinstance(event, RemoteStarted):
                    self.started = True
                else:
                    self.gone[event.number] = Exited(event.number, event.code, event.signal, event.out_of_memory)


class SshProcesses:
    """The processes of a launch, on all machines. A machine that loses the connection ends by itself
    (volary.machine_agent).
    """

    def __init__(self, connections: Sequence[SshConnection]) -> None:
        self._connections = connections
        self._reported: set[int] = set()
        self._stopping = False

    def pids(self) -> dict[int, int]:
        """No numbers: the processes are on other machines."""
        return {}

    def children(self) -> list[int]:
        """The ssh processes: what they have started ends with them."""
        return [connection.pid for connection in self._connections]

    def hosts(self) -> dict[int, str]:
        """The hosts, as ssh calls them."""
        return {number: one.name.removeprefix("ssh ") for one in self._connections for number in one.numbers}

    def running(self) -> set[int]:
        """The processes whose end `events` has not reported, on machines with a connection that can report it."""
        there = [connection.numbers for connection in self._connections if connection.code is None]
        return {number for numbers in there for number in numbers} - self._reported

    def events(self) -> list[Exited]:
        """The processes that have ended since the last call; never waits."""
        found = [
            gone for one in self._connections for gone in list(one.gone.values()) if gone.rank not in self._reported
        ]
        self._reported |= {gone.rank for gone in found}
        return found

    def ended(self) -> Ended | None:
        """The first ssh that was killed, or that started nothing.

        One that lost its connection is no such: heartbeats show what became of its processes.
        """
        if self._stopping:
            return None
        broken = [one for one in self._connections if one.code is not None and (one.code < 0 or not one.started)]
        if not broken:
            return None
        first, code = broken[0], broken[0].code or 0
        ranks = frozenset[int]().union(*(one.numbers - one.gone.keys() for one in broken))
        return Ended(first.name, first.pid, code, -code if code < 0 else None, first.log, ranks)

    def ask_to_end(self) -> None:
        """Send all of them a termination."""
        for connection in self._connections:
            connection.send(END)

    def kill(self, number: int) -> None:
        """Do nothing: its machine may be cut off, and a process that was given up ends itself once it learns so."""

    def stop(self, grace_s: float) -> None:
        """End what still runs: ask, then kill after `grace_s`; what cannot be reached ends by itself."""
        self.ended()
        self._stopping = True
        for word, at_most_s in ((END, grace_s), (KILL, GONE_WITHIN_S)):
            deadline = time.monotonic() + at_most_s
            for connection in self._connections if at_most_s else ():
                connection.send(word)
            for connection in self._connections:
                connection.wait(deadline - time.monotonic())
        for connection in self._connections:
            connection.close()
