"""Bytes of all connections are seen to move, in either direction, whoever has opened them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from volary.comm.groups.moving_bytes import MovingBytes

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as one:
        other, _ = listening.accept()
        with other:
            yield one, other


def test_bytes_that_are_carried_are_seen_once_and_those_that_nobody_takes_are_not(pair: Pair) -> None:
    moving = MovingBytes()
    assert not moving.seen(apart_from=-1), "there was no look before"
    pair[0].sendall(b"some")
    assert pair[1].recv(4) == b"some"
    assert moving.seen(apart_from=-1)
    assert not moving.seen(apart_from=-1)


def test_the_connection_of_heartbeats_does_not_count() -> None:
    moving = MovingBytes()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as sock:
        moving.seen(apart_from=-1)
        sock.sendall(b"beat")  # the kernel takes it for the end that nobody has accepted
        assert not moving.seen(apart_from=sock.fileno())
        sock.sendall(b"values")
        assert moving.seen(apart_from=-1)
