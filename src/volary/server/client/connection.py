"""One connection of a worker to a server, made again when it breaks: what waits to be sent, and the channel."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.control.errors import ConnectionLost, KeyRefused, OtherAttempt
from volary.server.protocol.wakeup import Wakeup

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel, Message, Place
    from volary.server.client.values import PushedValues
    from volary.server.protocol.header import Header

AGAIN_S = 0.1  # between two attempts to have a connection


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A header whose turn it is, with the values behind it. channel: that it was queued for. more: others follow."""

    channel: Channel
    header: Header
    values: PushedValues | None
    more: bool

    def send(self, read: Callable[[], None] | None) -> tuple[Header, int]:
        """Send it; returns the header as it was sent, and the bytes that this put on the wire.

        read: called once the values may change again. If the channel is broken, whoever receives from it learns that.
        """
        header, payload = (self.header, None) if self.values is None else self.values.leave(self.header)
        before = self.channel.sent_bytes
        try:
            self.channel.send(header.pack(), payload, read, more=self.more)
        except ConnectionLost:
            self.channel.close()
            if read is not None:
                read()
        return header, self.channel.sent_bytes - before


class ServerConnection:
    """A connection to server `number` at `address`. connect: opens a channel to it there.

    For one thread that opens it and receives, and one that sends; any other may queue messages and end it.
    """

    def __init__(self, number: int, address: tuple[str, int], connect: Callable[[int, tuple[str, int]], Channel]):
        self.number, self._address, self._connect = number, address, connect
        self._channel: Channel | None = None
        self._past = (0, 0)
        self._queue: list[tuple[tuple[int, int], int, Header, PushedValues | None]] = []
        self._order = itertools.count()
        self._lock, self._wakeup = threading.Lock(), Wakeup()  # of the queue, for the thread that sends
        self._ended = threading.Event()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far."""
        channel, (sent, received) = self._channel, self._past
        return (sent, received) if channel is None else (sent + channel.sent_bytes, received + channel.received_bytes)

    def open(self, within_s: float | None) -> bool:
        """Return True once a channel stands, False if none is wanted any more. Raises TimeoutError, and may be retried.

        within_s: None: try for ever.
        """
        since = time.monotonic()
        while not self._ended.is_set():
            try:
                channel = self._connect(self.number, self._address)
            except (ConnectionLost, KeyRefused, OtherAttempt):
                if within_s is not None and time.monotonic() - since > within_s:
                    raise TimeoutError(f"no connection to server {self.number} within {within_s:g} s") from None
                self._ended.wait(AGAIN_S)
                continue
            with self._lock:
                if self._ended.is_set():
                    channel.close()
                    return False
                self._channel = channel
            self._wakeup.ring()
            return True
        return False

    def queue(self, urgency: tuple[int, int], header: Header, values: PushedValues | None = None) -> None:
        """Let a message be sent in its turn, the smallest urgency first; forgotten where there is no channel."""
        with self._lock:
            if self._channel is not None:
                heapq.heappush(self._queue, (urgency, next(self._order), header, values))
        self._wakeup.ring()

    def next(self) -> QueuedMessage | None:
        """Wait for the message whose turn it is; None once the connection is not wanted any more."""
        while not self._ended.is_set():
            with self._lock:
                if self._channel is not None and self._queue:
                    _, _, header, values = heapq.heappop(self._queue)
                    more = bool(self._queue) and not self._queue[0][2].length  # of what is small
                    return QueuedMessage(self._channel, header, values, more)
            self._wakeup.wait()
        return None

    def receive(self, place: Place) -> tuple[Message, int]:
        """The next message, and the bytes that it took of the wire. place: as `Channel.receive` has it.

        Raises ConnectionLost, BadFrame.
        """
        channel = self._channel
        assert channel is not None, "a connection receives once it is open"
        before = channel.received_bytes
        message = channel.receive(place)
        return message, channel.received_bytes - before

    def drop(self) -> None:
        """Close the channel, which has broken, and forget what was queued for it."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            self._past = self.traffic
            self._channel = None
            self._queue.clear()

    def end(self) -> None:
        """Let go of the connection, from any thread; returns at once."""
        with self._lock:
            self._ended.set()
            channel = self._channel
        self._wakeup.ring()
        if channel is not None:
            channel.close()
