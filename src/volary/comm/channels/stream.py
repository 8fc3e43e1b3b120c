"""A stream of heads with payloads behind them, over a sock: each head proved, payloads encrypted where that was agreed.

On the wire: the head and its tag, sealed; then the payload as it is, or in sealed pieces, each with its tag. A head is
proved before anybody acts on what it says.
"""

from __future__ import annotations

from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.introduction import ProvenPeer
from volary.comm.control.sealing import TAG_BYTES

PIECE_BYTES = 256 * 2**10  # sealed at once: it is still in the cache when the kernel takes it, or it is opened


class HeadStream:
    """Sends heads of `head_bytes` bytes; one thread may send while another receives. Raises ConnectionLost, BadFrame.

    known.sealed: payloads are encrypted; otherwise they travel as they are, and only heads are.
    """

    def __init__(self, sock: BufferSocket, known: ProvenPeer, head_bytes: int) -> None:
        self.sock = sock
        self._outgoing, self._incoming, self._sealed = known.outgoing, known.incoming, known.sealed
        self._head = memoryview(bytearray(head_bytes + TAG_BYTES))
        pieces = PIECE_BYTES + TAG_BYTES if self._sealed else 0
        self._out_piece, self._in_piece = memoryview(bytearray(pieces)), memoryview(bytearray(pieces))
        self._past = memoryview(bytearray(PIECE_BYTES))
        self._waiting = bytearray()

    def send(self, head: bytes, payload: memoryview | None, *, more: bool = False) -> None:
        """Send a head and what is behind it. more: the next is sent at once, and may take this one along."""
        self._waiting += self._outgoing.seal(head)
        if payload is None and more:
            return
        heads, self._waiting = self._waiting, bytearray()
        if not payload:
            self.sock.send(heads)
        elif not self._sealed:
            self.sock.send(heads, payload)
        else:
            for at in range(0, len(payload), PIECE_BYTES):
                piece = payload[at : at + PIECE_BYTES]
                sealed = self._out_piece[: len(piece) + TAG_BYTES]
                self._outgoing.seal_into(piece, sealed)
                self.sock.send(*([sealed] if at else [heads, sealed]))

    def head(self) -> bytes:
        """Receive the next head, HEADER_BYTES bytes, once its proof is right."""
        self.sock.receive_next(self._head)
        return self._incoming.open(self._head)

    def payload(self, memory: memoryview | None, size_bytes: int) -> memoryview | None:
        """Receive the payload of the last head straight into `memory`; None: read past it. Gives `memory`."""
        if memory is None:
            for at in range(0, size_bytes, PIECE_BYTES):
                self._into(self._past[: min(PIECE_BYTES, size_bytes - at)])
        else:
            assert len(memory) == size_bytes, f"a place of {len(memory)} bytes for {size_bytes}"
            self._into(memory)
        return memory

    def _into(self, memory: memoryview) -> None:
        if not self._sealed:
            self.sock.receive_into(memory)
            return
        for at in range(0, len(memory), PIECE_BYTES):
            piece = memory[at : at + PIECE_BYTES]
            sealed = self._in_piece[: len(piece) + TAG_BYTES]
            self.sock.receive_into(sealed)
            self._incoming.open_into(sealed, piece)
