"""A worker's connection that breaks and is made again: nothing that was queued before goes over the next one."""

from __future__ import annotations

import queue
import secrets
import threading
from typing import Any

import pytest

from volary.comm.channels.channel import Credentials
from volary.comm.control.errors import ConnectionLost
from volary.comm.transports import ROOM as TRANSPORTS
from volary.server.client.connection import ServerConnection
from volary.server.protocol.header import HEADER_BYTES, Header, MessageKind

WITHIN_S = 60.0  # on a busy machine, too
NOW = (0, 0)


def pull(number: int) -> Header:
    return Header(MessageKind.PULL, number)


def test_what_is_queued_without_a_connection_does_not_go_over_the_next() -> None:
    carrier, own = TRANSPORTS.load("tcp")(), Credentials(secrets.token_bytes(32), "now", 0)
    here: queue.SimpleQueue[Any] = queue.SimpleQueue()
    listener = carrier.listen("127.0.0.1", own, here.put)
    connection = ServerConnection(
        0, listener.address, lambda _, address: carrier.connect(address, own, {"worker": 0}, WITHIN_S)
    )

    def send() -> None:
        while (message := connection.next()) is not None:
            message.send(None)

    sender = threading.Thread(target=send)
    sender.start()
    connection.queue(NOW, pull(1))
    assert connection.open(WITHIN_S)
    connection.queue(NOW, pull(2))
    server = here.get(timeout=WITHIN_S)
    assert server.receive(lambda header: None, WITHIN_S).header == pull(2).pack()
    assert len(pull(2).pack()) == HEADER_BYTES
    server.close()
    with pytest.raises(ConnectionLost):
        connection.receive(lambda header: None)
    connection.drop()
    connection.queue(NOW, pull(3))
    assert connection.open(WITHIN_S)
    connection.queue(NOW, pull(4))
    server = here.get(timeout=WITHIN_S)
    assert server.receive(lambda header: None, WITHIN_S).header == pull(4).pack()
    connection.end()
    sender.join(WITHIN_S)
    assert not connection.open(WITHIN_S)
    server.close()
    listener.close()


def test_who_finds_no_server_is_told_and_may_try_again() -> None:
    def connect(*_: Any) -> Any:
        raise ConnectionLost("nobody is there")

    connection = ServerConnection(3, ("127.0.0.1", 1), connect)
    with pytest.raises(TimeoutError, match="server 3"):
        connection.open(0.0)
    connection.end()
    assert not connection.open(None)
