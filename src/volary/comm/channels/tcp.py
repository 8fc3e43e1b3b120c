"""A channel whose payloads travel over a connection: sent from where they lie, received straight into place.

On the wire: a header and its tag, sealed; then the payload as it is, or in sealed pieces, each with its tag. A header
is proved before anybody acts on what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.channel import HEADER_BYTES, Message, Payload, Place, payload_bytes
from volary.comm.channels.introduction import ProvenPeer
from volary.comm.control.sealing import TAG_BYTES

PIECE_BYTES = 256 * 2**10  # sealed at once: it is still in the cache when the kernel takes it, or it is opened


@dataclass(frozen=True)
class Received:
    """A message whose payload is the receiver's own."""

    header: bytes
    payload: Payload | None
    lent: bool = False

    def release(self) -> None:
        pass


class TcpChannel:
    """A `Channel` over a connection, with headers of `header_bytes` bytes. Raises ConnectionLost, BadFrame.

    known.sealed: payloads are encrypted; otherwise they travel as they are, and only headers are.
    """

    def __init__(self, sock: BufferSocket, known: ProvenPeer, header_bytes: int = HEADER_BYTES) -> None:
        self.peer: dict[str, Any] = known.other.hello
        self.sock = sock
        self._outgoing, self._incoming, self._sealed = known.outgoing, known.incoming, known.sealed
        self._header = memoryview(bytearray(header_bytes + TAG_BYTES))
        pieces = PIECE_BYTES + TAG_BYTES if self._sealed else 0
        self._out_piece, self._in_piece = memoryview(bytearray(pieces)), memoryview(bytearray(pieces))
        self._past = memoryview(bytearray(PIECE_BYTES))
        self._waiting = bytearray()

    @property
    def sent_bytes(self) -> int:
        return self.sock.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self.sock.received_bytes

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
        self._waiting += self._outgoing.seal(header)
        if payload is not None or not more:
            headers, self._waiting = self._waiting, bytearray()
            self._send(headers, payload)
        if sent is not None:
            sent()

    def receive(self, place: Place, timeout_s: float | None = None) -> Message:
        if timeout_s is not None:
            self.sock.wait(timeout_s)
        try:
            header = self.header()
            return Received(header, self.payload(place(header), payload_bytes(header)))
        except BaseException:
            self.close()  # what follows cannot be told from the rest of this message
            raise

    def header(self) -> bytes:
        """Receive the next header, once its proof is right."""
        self.sock.receive_next(self._header)
        return self._incoming.open(self._header)

    def payload(self, memory: Payload | None, size_bytes: int) -> Payload | None:
        """Receive the payload of the last header straight into `memory`; None: read past it. Gives `memory`."""
        if memory is None:
            for at in range(0, size_bytes, PIECE_BYTES):
                self._into(self._past[: min(PIECE_BYTES, size_bytes - at)])
        else:
            assert len(memory) == size_bytes, f"a place of {len(memory)} bytes for {size_bytes}"
            self._into(memory)
        return memory

    def close(self) -> None:
        self.sock.close()

    def _send(self, headers: bytearray, payload: Payload | None) -> None:
        if not payload:
            self.sock.send(headers)
        elif not self._sealed:
            self.sock.send(headers, payload)
        else:
            for at in range(0, len(payload), PIECE_BYTES):
                piece = payload[at : at + PIECE_BYTES]
                sealed = self._out_piece[: len(piece) + TAG_BYTES]
                self._outgoing.seal_into(piece, sealed)
                self.sock.send(*([sealed] if at else [headers, sealed]))

    def _into(self, memory: Payload) -> None:
        if not self._sealed:
            self.sock.receive_into(memory)
            return
        for at in range(0, len(memory), PIECE_BYTES):
            piece = memory[at : at + PIECE_BYTES]
            sealed = self._in_piece[: len(piece) + TAG_BYTES]
            self.sock.receive_into(sealed)
            self._incoming.open_into(sealed, piece)
