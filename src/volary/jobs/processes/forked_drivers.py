"""A process that imports what drivers need before it is anybody's turn, and forks one for each run whose turn it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

FORKS = "VOLARY_FORKS_DRIVERS"  # by which such a process knows that it does
KEEP_S = 60.0  # an older one forks no second driver: Volary may be another one on the disk by then
ANSWER_S = 10.0
_READY = b"ready"
_MOST_BYTES = 1 << 16  # of a turn


@dataclass(frozen=True)
class DriverProcess:
    """How drivers are started that may be forked from one process: the command before their arguments, and where."""

    command: Sequence[str]
    folder: str
    variables: dict[str, str]


class Turn(msgspec.Struct, frozen=True):
    """Settings that a driver is given. cores: its own; empty: all. variables: further ones of its environment."""

    arguments: tuple[str, ...]
    cores: tuple[int, ...]
    variables: dict[str, str]


class DriverForkServer:
    """Forks drivers that are started alike, and ends with its runner; they outlive it. log: of what it says itself."""

    def __init__(self, alike: DriverProcess, log: Path) -> None:
        self._alike, self._started_s = alike, time.monotonic()
        self._is_ready = self._has_forked = False
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as written:
            self.process = subprocess.Popen(
                alike.command,
                cwd=alike.folder,
                env={**alike.variables, FORKS: "1"},
                stdin=theirs.fileno(),
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    def serves(self, alike: DriverProcess) -> bool:
        """Whether it is still there, and forks drivers that are started so."""
        is_old = self._has_forked and time.monotonic() - self._started_s > KEEP_S
        return alike == self._alike and not is_old and self.process.poll() is None

    def fork(self, turn: Turn, lock: int, log: int) -> int | None:
        """Fork a driver, which holds the lock that its runner holds, and prints to the log; its process.

        0: it may have begun, and its process is not known; None: it has not, as nothing is imported yet.
        """
        message = msgspec.json.encode(turn)
        try:
            if not self._is_ready:
                self._is_ready = self._socket.recv(len(_READY), socket.MSG_DONTWAIT) == _READY
            if not self._is_ready or len(message) > _MOST_BYTES:
                return None
            socket.send_fds(self._socket, [message], [lock, log])
        except OSError:
            return None
        self._has_forked = True
        with suppress(OSError):
            self._socket.settimeout(ANSWER_S)
            return int(self._socket.recv(len(_READY) + 20) or 0)
        return 0

    def close(self) -> None:
        """End it; its drivers go on."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


def wait_for_turn() -> None:
    """Fork a driver whenever it is a run's turn, and return in each of these; end with the runner that says so.

    Returns at once in a process that is one driver.
    """
    if os.environ.pop(FORKS, "") == "":
        return
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(fileno=os.dup(0)) as control:
        control.send(_READY)
        while True:
            message, files, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
            if not message:
                os._exit(0)
            if (driver := os.fork()) == 0:
                break
            for file in files:
                os.close(file)
            with suppress(ConnectionError):  # its runner has gone, which the next look finds
                control.send(str(driver).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _begin(msgspec.json.decode(message, type=Turn), *files)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _begin(turn: Turn, lock: int, log: int) -> None:
    """Be the driver of a run, as if this process had been started for it alone. lock: held as long as it lives."""
    os.setsid()
    os.set_inheritable(lock, False)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.argv[1:] = turn.arguments
    os.environ.update(turn.variables)
    if turn.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, turn.cores)
