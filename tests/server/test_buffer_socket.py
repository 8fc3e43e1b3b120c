"""A worker's connection that breaks and is made again: nothing that was said before goes over the next one."""

from __future__ import annotations

import queue
import secrets
import threading
from typing import Any

from volary.comm.control.errors import ConnectionLost
from volary.comm.transports import ROOM as TRANSPORTS
from volary.comm.transports._base import Credentials
from volary.server.client.connection import ServerConnection
from volary.server.protocol.header import HEADER_BYTES, Header, MessageKind

WITHIN_S = 60.0  # on a busy machine, too


class Told:
    """What the plug tells: `there` while there is a connection."""

    def __init__(self) -> None:
        self.there, self.not_there = threading.Event(), threading.Event()

    def opened(self, server: int) -> None:
        self.there.set()

    def lost(self, server: int) -> None:
        self.not_there.set()

    def unreachable(self, server: int) -> None: ...

    def leaving(self, server: int, header: Header) -> tuple[Header, None, None]:
        return header, None, None

    def carried(self, header: Header, sent: int, received: int) -> None: ...

    def place(self, server: int, header: Header) -> None: ...

    def came(self, server: int, header: Header, payload: Any) -> None: ...

    def failed(self, problem: Exception) -> None:
        raise problem


def pull(number: int) -> Header:
    return Header(MessageKind.PULL, number)


def test_what_is_said_without_a_connection_does_not_go_over_the_next() -> None:
    carrier, own, told = TRANSPORTS.load("tcp")(), Credentials(secrets.token_bytes(32), "now", 0), Told()
    here: queue.SimpleQueue[Any] = queue.SimpleQueue()
    may_connect = threading.Event()
    listener = carrier.listen("127.0.0.1", own, here.put)

    def connect(server: int, address: tuple[str, int]) -> Any:
        if not may_connect.wait(WITHIN_S):
            raise ConnectionLost("not yet")
        return carrier.connect(address, own, {"worker": 0}, WITHIN_S)

    plug = ServerConnection(0, listener.address, connect, told)
    plug.say((0, 0), pull(1))
    may_connect.set()
    assert told.there.wait(WITHIN_S)
    plug.say((0, 0), pull(2))
    server = here.get(timeout=WITHIN_S)
    assert server.receive(lambda header: None, WITHIN_S).header == pull(2).pack()
    assert len(pull(2).pack()) == HEADER_BYTES
    may_connect.clear()
    told.there.clear()
    server.close()
    assert told.not_there.wait(WITHIN_S)
    plug.say((0, 0), pull(3))
    may_connect.set()
    assert told.there.wait(WITHIN_S)
    plug.say((0, 0), pull(4))
    server = here.get(timeout=WITHIN_S)
    assert server.receive(lambda header: None, WITHIN_S).header == pull(4).pack()
    plug.end()
    plug.join()
    server.close()
    listener.close()
