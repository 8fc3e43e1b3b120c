"""A connected socket whose calls block in the kernel, without the interpreter's lock, and are bounded there."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading

from volary.comm.control import congestion
from volary.comm.control.errors import ConnectionLost

WAKE_BYTES = 256 * 2**10  # of what is longer, must be here before the receiver is woken: waking costs more than copying
AHEAD_BYTES = 1024  # are taken with what begins a message, if they are here: often more short messages
_TIMEVAL = struct.Struct("@ll")


class BufferSocket:
    """Sends and receives whole buffers. One thread may send while another receives; any may close.

    stall_s: see Credentials. sent_bytes, received_bytes: so far. address: who is at the other end. Its calls raise
    ConnectionLost.
    """

    def __init__(self, connected: socket.socket, address: str, stall_s: float) -> None:
        bound = _TIMEVAL.pack(int(stall_s), int(stall_s % 1 * 1e6))
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        congestion.suit(connected, address)
        self.address = address
        self.sent_bytes = self.received_bytes = 0
        self._socket = connected
        self._buffer = memoryview(bytearray(AHEAD_BYTES))
        self._ahead = self._buffer[:0]
        self._arrivals = select.poll()
        self._arrivals.register(connected, select.POLLIN)
        self._in_use = _Use(connected, address, stall_s)

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send all of `parts`, one after the other."""
        with self._in_use:
            size = sum(map(len, parts))
            sent = self._socket.sendmsg(parts)
            for part in parts if sent < size else ():
                self._socket.sendall(memoryview(part)[sent:])
                sent = max(0, sent - len(part))
            self.sent_bytes += size

    def receive_next(self, memory: memoryview) -> None:
        """Fill `memory` with what begins a message, whenever that comes."""
        with self._in_use:
            while not self._ahead:
                with contextlib.suppress(BlockingIOError):  # nothing for as long as within a message would be too long
                    self._ahead = self._buffer[: self._some(self._buffer)]
            self._fill(memory[self._taken(memory) :])
            self.received_bytes += len(memory)

    def receive_into(self, memory: memoryview) -> None:
        """Fill `memory` with what is on its way."""
        with self._in_use:
            rest = memory[self._taken(memory) :]
            first = max(0, len(rest) - WAKE_BYTES)
            if first:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
                self._fill(rest[:first])
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            self._fill(rest[first:])
            self.received_bytes += len(memory)

    def _taken(self, memory: memoryview) -> int:
        """Take bytes that are here already to the beginning of `memory`; return how many."""
        count = min(len(memory), len(self._ahead))
        memory[:count], self._ahead = self._ahead[:count], self._ahead[count:]
        return count

    def _fill(self, memory: memoryview) -> None:
        at = 0
        while at < len(memory):
            at += self._some(memory[at:], socket.MSG_WAITALL)

    def _some(self, memory: memoryview, flags: int = 0) -> int:
        got = self._socket.recv_into(memory, 0, flags)
        if not got:
            raise ConnectionLost(f"{self.address} closed the connection")
        return got

    def wait(self, timeout_s: float) -> None:
        """Sleep until something arrives. Raises TimeoutError."""
        with self._in_use:
            found = self._ahead or self._arrivals.poll(timeout_s * 1000)
        if not found:
            raise TimeoutError(f"nothing from {self.address} in time")

    def takes_more(self) -> bool:
        """Whether a few hundred bytes can be sent without waiting for the other side."""
        with self._in_use:
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            return bool(poll.poll(0))

    def close(self) -> None:
        """End it: whoever sends, receives or waits raises ConnectionLost. Harmless when repeated."""
        self._in_use.close()


class _Use:
    """Entered by whoever uses a socket: `close` shuts it down at once, and closes it when the last has left.

    A descriptor that a call still uses must not be given to someone else.
    """

    def __init__(self, connected: socket.socket, address: str, stall_s: float) -> None:
        self._socket, self._address, self._stall_s = connected, address, stall_s
        self._lock = threading.Lock()
        self._users, self._closed = 0, False

    def __enter__(self) -> None:
        with self._lock:
            if self._closed:
                raise ConnectionLost(f"the connection to {self._address} was closed on this side")
            self._users += 1

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        with self._lock:
            self._users -= 1
            if self._closed and not self._users:
                self._socket.close()
        if isinstance(problem, BlockingIOError):
            stopped = f"{self._address} stopped in the middle of a message for {self._stall_s:g} s"
            raise ConnectionLost(stopped) from None
        if isinstance(problem, OSError):
            raise ConnectionLost(f"the connection to {self._address} broke: {problem}") from None

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._users:
                self._socket.close()
