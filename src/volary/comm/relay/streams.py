"""Bytes of connections carried on: by a keyed connection, between two of these, or between two plain ones."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost

PIECE_BYTES = 64 * 2**10
STILL_S = 86400.0  # who carries bytes does not judge silence: those at the ends do

_BROKEN = (OSError, ConnectionLost, BadFrame, TimeoutError)


def carry(sock: socket.socket, connection: Connection) -> None:
    """Carry what comes out of `sock` by `connection`, and back, until both directions have ended; then close both."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.send_timeout_s = STILL_S

    def out() -> None:
        while data := sock.recv(PIECE_BYTES):
            connection.send(data)
        connection.send(b"")

    def back() -> None:
        while data := connection.receive(STILL_S):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    def end() -> None:
        connection.close()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    _both(out, back, end)
    sock.close()


def carry_between(one: Connection, other: Connection) -> None:
    """Carry the messages of two keyed connections to each other as `carry` does."""

    def towards(source: Connection, target: Connection) -> Callable[[], None]:
        def run() -> None:
            target.send_timeout_s = STILL_S
            data = b"-"
            while data:
                data = source.receive(STILL_S)
                target.send(data)

        return run

    def end() -> None:
        one.close()
        other.close()

    _both(towards(one, other), towards(other, one), end)


def splice(one: socket.socket, other: socket.socket) -> None:
    """Carry the bytes of two sockets to each other as `carry` does."""
    for sock in (one, other):
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def towards(source: socket.socket, target: socket.socket) -> Callable[[], None]:
        def run() -> None:
            while data := source.recv(PIECE_BYTES):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

        return run

    def end() -> None:
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    _both(towards(one, other), towards(other, one), end)
    one.close()
    other.close()


def _both(out: Callable[[], None], back: Callable[[], None], end: Callable[[], None]) -> None:
    """Run both directions until they have ended; if one of them breaks, so does the other. end: breaks them."""

    def run(direction: Callable[[], None]) -> None:
        try:
            direction()
        except _BROKEN:
            end()

    thread = threading.Thread(target=run, args=(out,), name="volary-stream", daemon=True)
    thread.start()
    run(back)
    thread.join()
    end()
