"""What a keyed server carries: a plain state machine over messages and a clock that is handed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

CLOSE: Final = object()  # as a message: close this peer's connection once all before it is sent

Replies: TypeAlias = Iterable[tuple[int, Any]]  # (peer, message); a peer that is gone by then is passed over


class Service(Protocol):
    """Called from the server's one thread only; does no input or output and never waits.

    peer: the server's number of one connection, never used twice. now: seconds of a monotonic clock.
    A call that raises BadMessage has its peer dropped.
    """

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """A client has proved the key and introduced itself."""

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message came: plain values as msgpack has them, not yet judged."""

    def closed(self, peer: int, now: float) -> Replies:
        """The connection is gone, whoever ended it. Not called when the server stops."""

    def tick(self, now: float) -> Replies:
        """About every 0.1 s: the place for deadlines."""
