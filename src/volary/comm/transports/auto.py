"""Shared memory between processes of one machine, TCP between machines: found out with each connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volary.comm.channels.channel import Channel, Credentials, Listener, Payload


@dataclass(frozen=True, kw_only=True)
class AutoTransport:
    """Does as `shared` on one machine, and as `tcp` elsewhere; see `_base.Transport`. Any of the three may connect."""

    def memory(self, size_bytes: int) -> Payload:
        from volary.comm.channels.segments import memory

        return memory(size_bytes)

    def listen(self, host: str, own: Credentials, accepted: Callable[[Channel], None]) -> Listener:
        from volary.comm.channels.connections import listen

        return listen(host, own, accepted, shares=True)

    def connect(
        self, address: tuple[str, int], wanted: Credentials, hello: dict[str, Any], timeout_s: float
    ) -> Channel:
        from volary.comm.channels.connections import connect

        return connect(address, wanted, hello, timeout_s, shares=True)


TRANSPORT = AutoTransport
