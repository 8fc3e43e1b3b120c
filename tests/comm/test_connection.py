"""A connection's bounds are of the time in which nothing moves: however slowly a message comes or goes, it arrives."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from volary.comm.control import connection
from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.comm.control.frames import FRAME_BYTES

MESSAGE = bytes(FRAME_BYTES // 2)  # many times what a socket holds
BOUND_S = 10.0


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Connection, Connection]]:
    """Two that talk to each other, by a clock on which each look takes a second: a whole message takes minutes."""
    seconds = itertools.count()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    connections = [Connection(sock, "the other", BOUND_S) for sock in socket.socketpair()]
    for end in connections:
        end._reader.limit_bytes = FRAME_BYTES
    yield connections[0], connections[1]
    for end in connections:
        end.close()


def test_a_message_may_take_many_times_the_bound_as_long_as_bytes_move(ends: tuple[Connection, Connection]) -> None:
    sender, receiver = ends
    failed: list[Exception] = []

    def send() -> None:
        try:
            sender.send(MESSAGE)
        except ConnectionLost as problem:
            failed.append(problem)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert receiver.receive(BOUND_S) == MESSAGE
    finally:
        receiver.close()
        thread.join()
    assert failed == []


def test_whoever_takes_nothing_for_the_bound_is_lost(ends: tuple[Connection, Connection]) -> None:
    with pytest.raises(ConnectionLost, match="stopped reading what is sent to it"):
        ends[0].send(MESSAGE)
