"""The protocol of channels: headers with payloads, between two processes that have proved the run's key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from volary.comm.control.sealing import Security

HEADER_BYTES = 48  # of every message; its last eight say how many bytes follow, little-endian
STALL_S = 60.0

Payload: TypeAlias = memoryview  # of bytes, writable where it is received into
Place: TypeAlias = Callable[[bytes], Payload | None]


@dataclass(frozen=True)
class Credentials:
    """The proof between the two ends of a channel: they have the run's key, and the one that listens is server number
    `server` of this `attempt_id` of the run. security: what is encrypted; the end that wants more gets it.

    stall_s: within a message, how long the other side may take nothing, or give nothing.
    """

    key: bytes = field(repr=False)
    attempt_id: str
    server: int
    security: Security = "encrypted"
    stall_s: float = STALL_S


def payload_bytes(header: bytes) -> int:
    """The number of bytes that follow this header."""
    return int.from_bytes(header[-8:], "little")


class Message(Protocol):
    """A received message. payload: in its place, or the sender's own memory, which must be left unchanged."""

    @property
    def header(self) -> bytes:
        """The message's header, HEADER_BYTES bytes."""
        ...

    @property
    def payload(self) -> Payload | None:
        """The payload; None if there is none, or it was skipped."""
        ...

    @property
    def lent(self) -> bool:
        """Whether the payload is the sender's memory."""
        ...

    def release(self) -> None:
        """The payload has been used: memory that was lent may change again. Harmless when repeated, or not lent."""
        ...


class Channel(Protocol):
    """One connection. sent_bytes, received_bytes: put on and taken off a wire so far; lent memory counts nothing.

    One thread may send while another receives.
    """

    peer: dict[str, Any]

    @property
    def sent_bytes(self) -> int:
        """Bytes that this side has put on a wire so far."""
        ...

    @property
    def received_bytes(self) -> int:
        """Bytes that this side has taken off a wire so far."""
        ...

    def memory(self, size_bytes: int) -> Payload:
        """Zeroed memory whose parts this side can send best: shared with the other side, where that can be, and with
        those of all other such channels of this process. It goes when nobody uses it any more. Raises OSError.
        """
        ...

    def send(
        self,
        header: bytes,
        payload: Payload | None = None,
        sent: Callable[[], None] | None = None,
        *,
        more: bool = False,
    ) -> None:
        """Send a message, from one thread at a time; a header of HEADER_BYTES bytes.

        sent: called, in any thread, once the payload may change again: when it is on its way, or, where it is lent,
        when the other side has released it or is gone. Not called where this raises. more: another message is sent at
        once, and one without a payload waits for it and travels with it. Raises ConnectionLost.
        """
        ...

    def receive(self, place: Place, timeout_s: float | None = None) -> Message:
        """The next message, for one thread. place: told the header, gives the memory of exactly the payload's size
        that it is received into, straight; None if there is no payload, or it is to be read past. It raises BadFrame if
        the header makes no sense, before any memory is taken. It is not asked about a payload that is lent: that has a
        place. Raises TimeoutError, after which the channel is good; ConnectionLost and BadFrame, which end it.
        """
        ...

    def close(self) -> None:
        """End it, from any thread: whoever sends or receives raises ConnectionLost."""
        ...


class Listener(Protocol):
    """Accepts channels. refusals: how many were turned away, by address."""

    address: tuple[str, int]
    refusals: Counter[str]

    def close(self) -> None:
        """Accept no more; channels that stand go on."""
        ...
