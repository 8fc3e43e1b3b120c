"""A keyed server with a service that answers, for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadMessage
from volary.comm.control.server import KeyedServer, Limits
from volary.comm.control.service import CLOSE, Replies

KEY = b"the key of this test run, 32 b.."


class Echo:
    """Says what it hears; a few words make it do more. `said` keeps what it was called with, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, Any]] = []
        self.ticks = 0

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        self.said.append(("opened", peer, hello))
        return [(peer, {"you": peer})]

    def received(self, peer: int, message: Any, now: float) -> Replies:
        self.said.append(("received", peer, message))
        match message:
            case "leave":
                return [(peer, "bye"), (peer, CLOSE)]
            case "nonsense":
                raise BadMessage("nonsense")
            case "bug":
                raise RuntimeError("a bug in the service")
            case {"give": size}:
                return [(peer, b"x" * size)]
        return [(peer, message)]

    def closed(self, peer: int, now: float) -> Replies:
        self.said.append(("closed", peer, None))
        return ()

    def tick(self, now: float) -> Replies:
        self.ticks += 1
        return ()


class Servers:
    """Makes servers that the test need not stop, and clients that it need not close."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.echo = Echo()

    def start(self, attempt_id: str | None = None, host: str = "127.0.0.1", **limits: Any) -> KeyedServer:
        server = KeyedServer(KEY, {"echo": self.echo}, host, attempt_id, Limits(**limits))
        return self.stack.enter_context(server)

    def client(self, server: KeyedServer, **hello: Any) -> Connection:
        return self.stack.enter_context(Connection.open(*server.address, KEY, "echo", hello, timeout_s=10))


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)
