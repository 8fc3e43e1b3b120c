"""A server that runs out of descriptors: those who are in go on, nothing spins, and it recovers by itself."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import volary
from volary.comm.control.connection import Connection

from .conftest import KEY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="resource limits are a thing of Unix")

HERE = Path(__file__).resolve().parent
WITHIN_S = 60.0  # on a busy machine, too


class Child:
    """The serving process: its address, and its last words once it is told to end."""

    def __init__(self, descriptors: int, strangers: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, HERE / "few_descriptors.py", str(descriptors), str(strangers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(volary.__file__).parents[1])},
        )
        assert self.process.stdout
        self.host, self.port = json.loads(self.process.stdout.readline())

    def client(self) -> Connection:
        client = Connection.open(self.host, self.port, KEY, "echo", {}, timeout_s=WITHIN_S)
        client.receive(WITHIN_S)
        return client

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=WITHIN_S)
        return dict(json.loads(out))


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        if child.process.poll() is None:
            child.process.kill()
        child.process.communicate()


def works(client: Connection) -> bool:
    client.send("are you there")
    return bool(client.receive(WITHIN_S) == "are you there")


def knock(child: Child, times: int, stack: ExitStack) -> list[socket.socket]:
    """Connections that are only begun: nobody waits until the server has accepted them."""
    plugs = []
    for _ in range(times):
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((child.host, child.port))
        plugs.append(sock)
    return plugs


def is_sent_away(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("strangers", [64, 10_000], ids=["held by the bound", "held by the descriptors alone"])
def test_600_idle_strangers_at_256_descriptors_disturb_nobody(children: list[Child], strangers: int) -> None:
    child = Child(256, strangers)
    children.append(child)
    with ExitStack() as stack:
        clients = [stack.enter_context(child.client()) for _ in range(5)]
        knocking: list[socket.socket] = []
        while len(knocking) < 600:  # no more at once than the backlog takes: what overflows it nobody is told of
            knocking += knock(child, 60, stack)
            assert all(works(client) for client in clients)
        deadline = time.monotonic() + WITHIN_S
        while sum(map(is_sent_away, knocking)) < 600 - 256:  # as many as cannot be kept
            assert all(works(client) for client in clients)
            assert time.monotonic() < deadline
        late = stack.enter_context(child.client())  # whoever has the key still gets in
        assert works(late)
        assert all(works(client) for client in clients)
    assert child.end()["refused"] >= 600 - 256
    assert child.process.returncode == 0


def test_without_descriptors_the_server_sleeps_and_takes_the_next_once_one_is_free(children: list[Child]) -> None:
    child = Child(32, 64)
    children.append(child)
    with ExitStack() as stack:
        clients = []
        with contextlib.suppress(Exception):
            while True:
                clients.append(
                    stack.enter_context(Connection.open(child.host, child.port, KEY, "echo", {}, timeout_s=1))
                )
        assert len(clients) > 10
        for client in clients:
            client.receive(WITHIN_S)
        stop = time.monotonic() + 2
        while time.monotonic() < stop:
            assert all(works(client) for client in clients)
            time.sleep(0.2)
        clients[0].close()
        assert works(stack.enter_context(child.client()))
    assert child.end()["busy"] < 0.5
