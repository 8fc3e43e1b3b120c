"""Memory that the processes of one machine share: what lies in it is lent, and only headers travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volary.comm.channels.channel import Channel, Credentials, Listener, Payload
from volary.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Connects processes of one machine only; see `_base.Transport`. What is not in `memory` is sent as bytes."""

    def memory(self, size_bytes: int) -> Payload:
        from volary.comm.channels.segments import memory

        return memory(size_bytes)

    def listen(self, host: str, own: Credentials, accepted: Callable[[Channel], None]) -> Listener:
        from volary.comm.channels.connections import listen

        return listen(host, own, accepted, shares=True)

    def connect(
        self, address: tuple[str, int], wanted: Credentials, hello: dict[str, Any], timeout_s: float
    ) -> Channel:
        """Connect as `_base.Transport` says; raises SettingError if the other side is not on this machine."""
        from volary.comm.channels.connections import connect
        from volary.comm.channels.lending import LendingChannel

        channel = connect(address, wanted, hello, timeout_s, shares=True)
        if not isinstance(channel, LendingChannel):
            channel.close()
            raise SettingError(
                f"transport=shared: {address[0]}:{address[1]} does not share this machine's memory; accepted: auto, tcp"
            )
        return channel


TRANSPORT = Shared
