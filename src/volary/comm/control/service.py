"""Services of a keyed server: plain state machines over messages and a clock, or takers of whole connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from volary.comm.control.sealing import Seal

CLOSE: Final = object()  # as a message: close this peer's connection once all before it is sent


@dataclass(frozen=True)
class GiveUpAfter:
    """A message that ends this peer's connection once its machine has not answered for so long, whatever the peer does.

    None: the system's own bound. It suits peers that read as soon as something comes: the kernel also counts the time
    for which one leaves it unread.
    """

    seconds: float | None


Replies: TypeAlias = Iterable[tuple[int, Any]]  # (peer, message); a peer that is gone by then is passed over


class Service(Protocol):
    """Called from the server's one thread only; does no input or output and never waits.

    peer: the server's number of one connection, never used twice. now: seconds of a monotonic clock.
    A call that raises BadMessage has its peer dropped.
    """

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """A client has proved the key and introduced itself. hello: with "terms" of the service, if it proved some."""

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message came: plain values as msgpack has them, not yet judged."""

    def closed(self, peer: int, now: float) -> Replies:
        """The connection is gone, whoever ended it. Not called when the server stops."""

    def tick(self, now: float) -> Replies:
        """About every 0.1 s: the place for deadlines."""


@dataclass(frozen=True)
class Guest:
    """A connection that has proved the key, and its first message; nothing has been said to it since.

    outgoing, incoming: go on where the handshake ended. sealed: one of the two sides wants all to be encrypted. terms:
    of the service, if it proved some.
    """

    sock: socket.socket
    address: str
    outgoing: Seal
    incoming: Seal
    sealed: bool
    hello: bytes
    terms: str


@dataclass(frozen=True)
class Reception:
    """A service that takes each connection over once it is known, in the server's thread: it must not wait.

    The socket is its own from then on. It raises BadFrame or BadMessage
    for those whom it does not take.
    """

    take: Callable[[Guest], None]
