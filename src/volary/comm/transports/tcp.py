"""Plain TCP sockets, one connection a pair of processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volary.comm.channels.channel import Channel, Credentials, Listener, Payload


@dataclass(frozen=True, kw_only=True)
class Tcp:
    """Payloads are sent from where they lie and received straight into place; see `_base.Transport`."""

    def memory(self, size_bytes: int) -> Payload:
        return memoryview(bytearray(size_bytes))

    def listen(self, host: str, own: Credentials, accepted: Callable[[Channel], None]) -> Listener:
        from volary.comm.channels.connections import listen

        return listen(host, own, accepted, shares=False)

    def connect(
        self, address: tuple[str, int], wanted: Credentials, hello: dict[str, Any], timeout_s: float
    ) -> Channel:
        from volary.comm.channels.connections import connect

        return connect(address, wanted, hello, timeout_s, shares=False)


TRANSPORT = Tcp
