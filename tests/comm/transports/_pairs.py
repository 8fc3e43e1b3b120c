"""Two ends of a channel for tests: over a listener, or over a wire that the test holds in its hands."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.channel import HEADER_BYTES, Channel, Credentials, Payload, payload_bytes
from volary.comm.channels.introduction import Introduction, ProvenPeer
from volary.comm.channels.tcp import TcpChannel
from volary.comm.control.sealing import Seal
from volary.comm.transports import ROOM
from volary.errors import SettingError

KEY = b"the key of this test run, 32 b.."
OWN = Credentials(KEY, "now", 3)
WITHIN_S = 60.0  # on a busy machine, too


def header(length: int, mark: int = 0) -> bytes:
    return bytes([mark]) * (HEADER_BYTES - 8) + length.to_bytes(8, "little")


def anywhere(header: bytes) -> Payload | None:
    """Memory for any payload."""
    size = payload_bytes(header)
    return memoryview(bytearray(size)) if size else None


@contextmanager
def joined(name: str, host: str = "127.0.0.1", other: str | None = None) -> Iterator[tuple[Channel, Channel]]:
    """Who connects by transport `name`, and who listens by `other` (or the same)."""
    here: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    with ExitStack() as ending:
        door = ROOM.load(other or name)().listen(host, OWN, here.put)
        ending.callback(door.close)
        try:
            client = ROOM.load(name)().connect(door.address, OWN, {"worker": 5}, WITHIN_S)
        except SettingError:  # it found out whom it had reached: the other side has a channel, too, or is about to
            here.get(timeout=WITHIN_S).close()
            raise
        ending.callback(client.close)
        server = here.get(timeout=WITHIN_S)
        ending.callback(server.close)
        yield client, server


class Cut:
    """A sender and a receiver whose wire is cut: what one says is taken by `said`, the other is told by `say`."""

    def __init__(self, sealed: bool, stall_s: float = WITHIN_S) -> None:
        out, self._tap = socket.socketpair()
        self._feed, into = socket.socketpair()
        self.sender, self.receiver = (
            TcpChannel(
                BufferSocket(sock, "127.0.0.1", stall_s), ProvenPeer(Seal(bytes(32)), Seal(bytes(32)), sealed, _HELLO)
            )
            for sock in (out, into)
        )

    def said(self, size: int = 0) -> bytes:
        """The bytes sent since the last call; waits for `size` bytes of them."""
        found = b""
        while True:
            self._tap.setblocking(len(found) < size)
            try:
                found += self._tap.recv(2**20)
            except BlockingIOError:
                return found

    def say(self, data: bytes, *, end: bool = True) -> None:
        """To the receiver. end: then that side of the wire is closed."""
        self._feed.sendall(data)
        if end:
            self._feed.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self._tap.close()
        self._feed.close()


_HELLO = Introduction({}, "")
