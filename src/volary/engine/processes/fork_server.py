"""The driver's side of the fork server (volary.fork_server), which is kept for the next run of the same process."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from volary.engine.processes.adopted import Adoption

SERVER = [sys.executable, "-m", "volary.fork_server"]
ROOMS = (
    "codec",
    "comm",
    "consistency",
    "data",
    "exchange",
    "network",
    "partition",
    "run",
    "server",
    "session",
    "train",
)
PLACES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # read once, when torch is imported
_MOST_BYTES = 1 << 16
_adoption = Adoption()


@dataclass(frozen=True)
class ForkEnvironment:
    """The environment that processes begin with and cannot change, and the cores of one of them."""

    environment: Mapping[str, str]
    cores: Sequence[int]


@dataclass
class ForkOrder:
    """Processes that were ordered. pids: of them, once they run. errno: why not. lost: the fork server has gone."""

    server: ForkServer
    pids: Sequence[int] | None = None
    errno: int | None = None
    lost: bool = False

    @property
    def answered(self) -> bool:
        """Whether its outcome is known."""
        return self.lost or self.pids is not None or self.errno is not None


class ForkServer:
    """One that was started by this process. It imports at once, in these surroundings."""

    def __init__(self, surroundings: ForkEnvironment) -> None:
        self._surroundings, self._owner = surroundings, os.getpid()
        self._orders: deque[ForkOrder] = deque()
        self._unread = b""
        self._closed = False
        self._lock = threading.RLock()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*SERVER, ",".join(map(str, surroundings.cores))],
                env={**surroundings.environment, "VOLARY_DRIVER": str(self._owner)},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the fork server."""
        return self._process.pid

    def serves(self, surroundings: ForkEnvironment) -> bool:
        """Whether it runs, and its processes would find that."""
        ours = self._owner == os.getpid() and not self._closed
        return ours and self._surroundings == surroundings and self._process.poll() is None

    @property
    def busy(self) -> bool:
        """Whether processes that were ordered have not been reported yet."""
        return bool(self._orders)

    def order(self, module: str, arguments: Sequence[str], processes: Sequence[Mapping[str, Any]]) -> ForkOrder | None:
        """Order processes of `python -m module`, each with `variables` of its own and a `log`. None: it cannot."""
        content = {
            "module": module,
            "arguments": list(arguments),
            "modules": [name for name in sys.modules if name.startswith(tuple(f"volary.{room}." for room in ROOMS))],
            "folder": os.getcwd(),  # noqa: PTH109  # as text
            "cores": sorted(os.sched_getaffinity(0)),
            "environment": dict(os.environ),
            "processes": list(processes),
        }
        with self._lock:
            if not self._orders and not _adoption.begin():
                return None
            order = ForkOrder(self)
            self._orders.append(order)
            # through a file: the server reads no socket as long as it imports
            with os.fdopen(os.memfd_create("order"), "wb") as file, suppress(OSError):
                file.write(json.dumps(content).encode())
                file.flush()
                socket.send_fds(self._socket, [b"o"], [file.fileno()])
            return order

    def look(self) -> None:
        """Read what the fork server reports, without waiting."""
        with self._lock, suppress(BlockingIOError):
            while not self._closed:
                try:
                    received = self._socket.recv(_MOST_BYTES)
                except ConnectionError:
                    received = b""
                if not received:
                    self.close()
                self._take(received)

    def close(self) -> None:
        """End it. Orders that it has not carried out by now are lost."""
        with self._lock:
            if self._closed or self._owner != os.getpid():  # or a copy, in a process that ours has forked
                return
            self._closed = True
            self._process.kill()
            self._process.wait()
            with suppress(OSError):
                self._take(self._socket.recv(_MOST_BYTES))
            self._socket.close()
            while self._orders:
                self._answered(None)

    def _take(self, received: bytes) -> None:
        *answers, self._unread = (self._unread + received).split(b"\n")
        for answer in answers:
            self._answered(json.loads(answer))

    def _answered(self, answer: Any) -> None:
        order = self._orders.popleft()
        if answer is None:
            order.lost = True
        elif isinstance(answer, list):
            order.pids = answer
        else:
            order.errno = answer["errno"]
        if not self._orders:
            _adoption.end()


_started: list[ForkServer] = []
_starting = threading.Lock()


def forks(environment: Mapping[str, str]) -> bool:
    """Whether processes are forked from one that has imported what they need; else each imports it."""
    return sys.platform == "linux" and not any(name in environment for name in PLACES)


def fork_server(surroundings: ForkEnvironment) -> ForkServer | None:
    """The one that runs, if it suits, or a new one; None where processes cannot be had that way."""
    if not forks(surroundings.environment):
        return None
    with _starting:
        for server in _started:
            if server.serves(surroundings):
                return server
        for server in [one for one in _started if not one.busy]:
            server.close()
            _started.remove(server)
        _started.append(ForkServer(surroundings))
        return _started[-1]


@atexit.register
def _end() -> None:
    for server in _started:
        server.close()
