"""A channel whose payloads travel over a connection: sent from where they lie, received straight into place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.channel import HEADER_BYTES, Message, Payload, Place, payload_bytes
from volary.comm.channels.introduction import ProvenPeer
from volary.comm.channels.stream import HeadStream


@dataclass(frozen=True)
class Received:
    """A message whose payload is the receiver's own."""

    header: bytes
    payload: Payload | None
    lent: bool = False

    def release(self) -> None:
        pass


class TcpChannel:
    """A `Channel` over a connection: headers and payloads travel, sealed where that was agreed."""

    def __init__(self, sock: BufferSocket, known: ProvenPeer) -> None:
        self.peer: dict[str, Any] = known.other.hello
        self._sock = sock
        self._stream = HeadStream(sock, known, HEADER_BYTES)

    @property
    def sent_bytes(self) -> int:
        return self._sock.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._sock.received_bytes

    def memory(self, size_bytes: int) -> Payload:
        return memoryview(bytearray(size_bytes))

    def send(
        self,
        header: bytes,
        payload: Payload | None = None,
        sent: Callable[[], None] | None = None,
        *,
        more: bool = False,
    ) -> None:
        self._stream.send(header, payload, more=more)
        if sent is not None:
            sent()

    def receive(self, place: Place, timeout_s: float | None = None) -> Message:
        if timeout_s is not None:
            self._sock.wait(timeout_s)
        try:
            header = self._stream.head()
            return Received(header, self._stream.payload(place(header), payload_bytes(header)))
        except BaseException:
            self.close()  # what follows cannot be told from the rest of this message
            raise

    def close(self) -> None:
        self._sock.close()
