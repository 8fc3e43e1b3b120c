"""The protocol of transports: how channels between two processes are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from volary.comm.channels.channel import Channel, Credentials, Listener, Payload


class Transport(Protocol):
    """Settings of a transport. The first message of each side is its hello: a small mapping, in `Channel.peer`.

    Headers are encrypted, and payloads where they leave loopback; with security="always" everywhere, and with
    "authenticated" nowhere. A side that wants encryption has it, whatever the other says.
    """

    def memory(self, size_bytes: int) -> Payload:
        """Give memory as `Channel.memory` does, before there is a channel."""
        ...

    def listen(self, host: str, own: Credentials, accepted: Callable[[Channel], None]) -> Listener:
        """Listen on a free port of `host`. accepted: called with each channel whose other side has proved the key, in a
        thread of the channel's own, which ends with the call. Raises OSError.
        """
        ...

    def connect(
        self, address: tuple[str, int], wanted: Credentials, hello: dict[str, Any], timeout_s: float
    ) -> Channel:
        """Prove the key to a listener, and have it prove that it is who is wanted.

        Raises ConnectionLost, KeyRefused, OtherAttempt.
        """
        ...
