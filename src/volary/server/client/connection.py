"""One connection of a worker to a server, made again when it breaks: a thread that receives and one that sends."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused, OtherLife
from volary.server.protocol.header import Header
from volary.server.protocol.wakeup import Wakeup

if TYPE_CHECKING:
    from volary.comm.transports._base import Channel, Message, Payload

AGAIN_S = 0.1  # between two attempts to have a connection
GIVE_UP_S = 5.0  # without one, after which that is told
LEAVE_S = 10.0  # for threads to end


class Owner(Protocol):
    """What a connection tells, from its threads."""

    def opened(self, server: int) -> None:
        """A connection to server `server` stands again: what was under way is to be sent anew."""
        ...

    def lost(self, server: int) -> None:
        """It is gone; what was to be said over it is forgotten."""
        ...

    def unreachable(self, server: int) -> None:
        """There has been none for some seconds; it is still tried."""
        ...

    def leaving(self, server: int, header: Header) -> tuple[Header, Payload | None, Callable[[], None] | None]:
        """What leaves now: the header as it is sent, what follows it, and whom to tell that this was read."""
        ...

    def carried(self, header: Header, sent: int, received: int) -> None:
        """So many bytes of this message have gone over a wire."""
        ...

    def place(self, server: int, header: Header) -> Payload | None:
        """Where what follows is to be received; None to read past it. Raises BadFrame."""
        ...

    def came(self, server: int, header: Header, payload: Payload | None) -> None:
        """It is here; payload: what `place` gave, or memory that is lent until this returns."""
        ...

    def failed(self, problem: Exception) -> None:
        """An error that is not the connection's has ended the thread."""
        ...


class ServerConnection:
    """To server `number` at `address`. connect: opens a channel to it there."""

    def __init__(
        self, number: int, address: tuple[str, int], connect: Callable[[int, tuple[str, int]], Channel], to: Owner
    ):
        self._number, self._address, self._connect, self._to = number, address, connect, to
        self._channel: Channel | None = None
        self._past = (0, 0)
        self._queue: list[tuple[tuple[int, int], int, Header]] = []
        self._order = itertools.count()
        self._lock, self._wakeup = threading.Lock(), Wakeup()  # of the queue, for the thread that sends
        self._ended = threading.Event()
        name = f"server-{number}"
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._receive,), name=f"{name}-receives", daemon=True),
            threading.Thread(target=self._guarded, args=(self._send,), name=f"{name}-sends", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far."""
        channel, (sent, received) = self._channel, self._past
        return (sent, received) if channel is None else (sent + channel.sent_bytes, received + channel.received_bytes)

    def say(self, urgency: tuple[int, int], header: Header) -> None:
        """Send a message when its turn comes, the smallest urgency first; forgotten where there is no connection."""
        with self._lock:
            if self._channel is not None:  # else `lost` is being told: what the next connection carries is said anew
                heapq.heappush(self._queue, (urgency, next(self._order), header))
        self._wakeup.ring()

    def end(self) -> None:
        """Let go of the connection; returns at once."""
        with self._lock:
            self._ended.set()
            channel = self._channel
        self._wakeup.ring()
        if channel is not None:
            channel.close()

    def join(self) -> None:
        """Wait for the threads, after `end`."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LEAVE_S)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:
            self._to.failed(problem)

    def _receive(self) -> None:
        while (channel := self._opened()) is not None:
            try:
                self._listen(channel)
            except (ConnectionLost, BadFrame):
                self._close(channel)

    def _opened(self) -> Channel | None:
        """A connection; None if it is not wanted any more."""
        since, told = time.monotonic(), False
        while not self._ended.is_set():
            try:
                return self._open()
            except (ConnectionLost, KeyRefused, OtherLife):
                if not told and time.monotonic() - since > GIVE_UP_S:
                    told = True
                    self._to.unreachable(self._number)
                self._ended.wait(AGAIN_S)
        return None

    def _open(self) -> Channel:
        channel = self._connect(self._number, self._address)
        with self._lock:
            if self._ended.is_set():
                channel.close()
                raise ConnectionLost("the connection is not wanted any more")
            self._channel = channel
        self._wakeup.ring()
        self._to.opened(self._number)
        return channel

    def _close(self, channel: Channel) -> None:
        channel.close()
        with self._lock:
            self._past = self.traffic
            self._channel = None
            self._queue.clear()
        self._to.lost(self._number)

    def _listen(self, channel: Channel) -> None:
        while True:
            before = channel.received_bytes
            message = channel.receive(lambda header: self._to.place(self._number, Header.unpack(header)))
            self._take(message, channel.received_bytes - before)

    def _take(self, message: Message, size_bytes: int) -> None:
        header = Header.unpack(message.header)
        try:
            self._to.carried(header, 0, size_bytes)
            self._to.came(self._number, header, message.payload)
        finally:
            message.release()

    def _send(self) -> None:
        while (turn := self._next()) is not None:
            channel, header, more = turn
            header, payload, read = self._to.leaving(self._number, header)
            try:
                before = channel.sent_bytes
                channel.send(header.pack(), payload, read, more=more)
                self._to.carried(header, channel.sent_bytes - before, 0)
            except ConnectionLost:
                channel.close()  # so the receiving thread finds out too
                if read is not None:
                    read()

    def _next(self) -> tuple[Channel, Header, bool] | None:
        """What is to be said now, and whether there is more of what is small."""
        while not self._ended.is_set():
            with self._lock:
                if self._channel is not None and self._queue:
                    _, _, header = heapq.heappop(self._queue)
                    return self._channel, header, bool(self._queue) and not self._queue[0][2].length
            self._wakeup.wait()
        return None
