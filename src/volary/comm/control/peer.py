"""One connection as the server holds it: bytes in up to whole frames, frames out up to a bound. Never blocks."""

from __future__ import annotations

import selectors
import socket
from collections import deque

from volary.comm.control import congestion
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.control.frames import FRAME_BYTES, HEADER_BYTES, STRANGER_FRAME_BYTES, FrameReader
from volary.comm.control.handshake import ServerSide
from volary.comm.control.sealing import TAG_BYTES, Seal
from volary.comm.control.service import Guest

_READ_BYTES = 64 * 2**10
_PAUSE_BYTES = 2**20  # a peer with this much unread output is not read from until it has caught up


class Peer:
    """A socket, its handshake and its buffers. A stranger until `trust`, opened once `opened` is set."""

    def __init__(self, number: int, sock: socket.socket, address: str, side: ServerSide, deadline: float) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        congestion.suit(sock, address)
        self.number, self.sock, self.address, self.side, self.deadline = number, sock, address, side, deadline
        self.opened = False  # its service knows it
        self.closing = False  # nothing more is read; closed once all output is sent
        self.waiting_bytes = 0
        self._seals: tuple[Seal, Seal] | None = None  # of what is sent and received, once that is agreed
        self._reader = FrameReader(STRANGER_FRAME_BYTES)
        self._output: deque[memoryview] = deque()
        self._read_bytes = STRANGER_FRAME_BYTES + HEADER_BYTES

    @property
    def events(self) -> int:
        """The events to wait for: readable unless it lags behind with reading, writable while there is output."""
        reading = selectors.EVENT_READ if self.waiting_bytes < _PAUSE_BYTES else 0
        return reading | (selectors.EVENT_WRITE if self._output else 0)

    def trust(self, *, leaves: bool) -> None:
        """The key is proved: larger frames are welcome, and encrypted from now on if that was agreed. Raises BadFrame.

        leaves: its first message is encrypted in any case, and is all that is read here.
        """
        if self.side.sealed or leaves:
            keys = self.side.keys()
            self._seals = Seal(keys.outgoing), Seal(keys.incoming)
        if leaves:
            return
        self._reader.limit_bytes = FRAME_BYTES + (TAG_BYTES if self._seals else 0)
        self._read_bytes = _READ_BYTES

    def give_up_after(self, seconds: float | None) -> None:
        """Let the connection end once the other machine has not answered the kernel's probes for so long."""
        bounds = {"TCP_USER_TIMEOUT": round(1000 * (seconds or 0))}
        if seconds:
            bounds |= {"TCP_KEEPIDLE": max(1, round(seconds / 2)), "TCP_KEEPINTVL": 1}
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, bool(seconds))
        for name, value in bounds.items():
            if hasattr(socket, name):  # not every system has all of them
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def leave(self, hello: bytes) -> Guest:
        """Hand the connection over, after its first message. Raises BadFrame if more has been said."""
        assert self._seals is not None, "it has not been trusted"
        if self._reader.pending_bytes:
            raise BadFrame("more was said than a first message")
        return Guest(self.sock, self.address, *self._seals, self.side.sealed, hello, self.side.terms)

    def read(self) -> None:
        """Take what has arrived. Raises ConnectionLost at its end."""
        try:
            data = self.sock.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            raise ConnectionLost(str(problem)) from None
        if not data:
            raise ConnectionLost("closed by the peer")
        if not self.closing:
            self._reader.feed(data)

    def take(self) -> bytes | None:
        """The next whole body, if any. Raises BadFrame."""
        body = None if self.closing else self._reader.take()
        return body if body is None or self._seals is None else self._seals[1].open_body(body)

    def send(self, frame: bytes, limit_bytes: int) -> None:
        """Send now what fits, keep the rest. Raises ConnectionLost if it breaks or more than `limit_bytes` wait."""
        if self._seals is not None:
            frame = self._seals[0].seal_frame(frame)
        self._output.append(memoryview(frame))
        self.waiting_bytes += len(frame)
        self.flush()
        if self.waiting_bytes > limit_bytes:
            raise ConnectionLost(f"leaves {self.waiting_bytes} bytes unread; accepted: {limit_bytes}")

    def flush(self) -> None:
        """Send what the socket takes. Raises ConnectionLost if it breaks."""
        while self._output:
            try:
                sent = self.sock.send(self._output[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                raise ConnectionLost(str(problem)) from None
            self.waiting_bytes -= sent
            if sent == len(self._output[0]):
                self._output.popleft()
            else:
                self._output[0] = self._output[0][sent:]
