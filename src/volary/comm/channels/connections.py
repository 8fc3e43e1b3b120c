"""Channels over one kind of connection, whichever transport asks: listening, connecting, and what comes of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from volary.comm.channels.acceptor import Acceptor
from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.channel import Channel, Credentials
from volary.comm.channels.introduction import Introduction, ProvenPeer, ask
from volary.comm.channels.lending import LendingChannel
from volary.comm.channels.segments import why_not
from volary.comm.channels.tcp import TcpChannel
from volary.comm.control.errors import ConnectionLost
from volary.comm.memory.shared_memory import machine

_RETRY_S = 0.05  # between attempts while the other side is too busy with strangers to keep us


def listen(host: str, own: Credentials, accepted: Callable[[Channel], None], shares: bool) -> Acceptor:
    """See `Transport.listen`. shares: offer shared memory to those of this machine. Raises OSError, BadInput."""
    introduction = _introduction({"server": own.server}, shares)

    def welcome(sock: socket.socket, address: str, known: ProvenPeer) -> None:
        accepted(_channel(sock, address, introduction, known, own.stall_s))

    return Acceptor(host, own, introduction, welcome)


def connect(
    address: tuple[str, int], wanted: Credentials, hello: dict[str, Any], timeout_s: float, shares: bool
) -> Channel:
    """See `Transport.connect`. shares: take shared memory where the other side offers it.

    Tries again within `timeout_s` if the other side lets go of us before it knows us. Raises as that says.
    """
    own, deadline = _introduction(hello, shares), time.monotonic() + timeout_s
    while True:
        sock = _sock(address, deadline)
        try:
            known = ask(sock, wanted, own, deadline)
            return _channel(sock, address[0], own, known, wanted.stall_s)
        except ConnectionLost:
            sock.close()
            if time.monotonic() + _RETRY_S >= deadline:
                raise
            time.sleep(_RETRY_S)
        except BaseException:
            sock.close()
            raise


def _introduction(hello: dict[str, Any], shares: bool) -> Introduction:
    return Introduction(hello, machine() if shares and not why_not() else "")


def _channel(sock: socket.socket, address: str, own: Introduction, known: ProvenPeer, stall_s: float) -> Channel:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected = BufferSocket(sock, address, stall_s)
    if own.machine and own.machine == known.other.machine:
        return LendingChannel(connected, known)
    return TcpChannel(connected, known)


def _sock(address: tuple[str, int], deadline: float) -> socket.socket:
    try:
        return socket.create_connection(address, timeout=max(0.001, deadline - time.monotonic()))
    except OSError as problem:
        raise ConnectionLost(f"nobody answers at {address[0]}:{address[1]}: {problem}") from None
