"""One worker's connections to all servers: the threads and channels around a `Client`."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from volary.comm.control.errors import BadFrame
from volary.errors import PeerLost, VolaryError
from volary.server.client.client import Client, Held, HeldAll, Installed, RequestRefused, Send
from volary.server.client.connection import ServerConnection
from volary.server.protocol.header import Form, Header, MessageKind

if TYPE_CHECKING:
    from volary.comm.transports._base import Channel, Payload
    from volary.server.client.client import Action
    from volary.server.protocol.messages import View

WAIT_S = 600.0  # the watches beside the data path find who is lost within seconds; this bounds what they cannot see
REFUSAL_BYTES = 1024
CARRYING = (MessageKind.PUSH, MessageKind.SET)
NOW = (-1, 0)  # what is small goes first


class BufferProvider(Protocol):
    """Whose memory it is that headers speak of. Called from the link's threads; `place` with `Link.changed` held."""

    def leave(self, header: Header) -> tuple[Header, Payload]:
        """What a PUSH carries, and the header as it is sent."""
        ...

    def place(self, header: Header) -> Payload | None:
        """Where awaited values are to be received; None: whoever lends them waits for `landed`. Raises BadFrame."""
        ...

    def landed(self, header: Header, payload: Payload) -> None:
        """They are here; `payload` may change when this returns."""
        ...

    def carried(self, header: Header, sent: int, received: int) -> None:
        """So many bytes of a message have gone over a wire."""
        ...

    def happened(self, event: Held | HeldAll | Installed | RequestRefused) -> None:
        """An event that the client reports, under the link's lock."""
        ...


class Link:
    """Carries what `client` wants said, the most urgent first, and what servers answer.

    connect: opens a channel to a server at an address; raises ConnectionLost. unreachable: called with a server that no
    connection can be had to. changed: notified whenever something that somebody may wait for has changed; held while
    the client is asked.
    """

    def __init__(
        self,
        client: Client,
        connect: Callable[[int, tuple[str, int]], Channel],
        unreachable: Callable[[int], None],
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.unreachable = unreachable
        self._client, self._connect = client, connect
        self._buffers: BufferProvider
        self._urgency: Mapping[int, int] = {}
        self._connections: dict[int, ServerConnection] = {}
        self._failure: Exception | None = None
        self._awaited: list[Callable[[], bool]] = []
        self._past = [0, 0]
        self._turns = itertools.count()
        self._reading: dict[int, set[tuple[int, int]]] = {}  # by server, pushes that a channel still reads, by clock

    def start(self, buffers: BufferProvider, urgency: Mapping[int, int]) -> None:
        """Say whose memory it is, before the first view. urgency: by slice; the smaller, the sooner it is needed."""
        self._buffers, self._urgency = buffers, urgency

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received since the start."""
        sent, received = zip(self._past, *(one.traffic for one in list(self._connections.values())), strict=True)
        return sum(sent), sum(received)

    def view(self, view: View) -> None:
        """Use the servers of a new view: some have come, or gone."""
        with self.changed:
            gone = [self._connections.pop(number) for number in list(self._connections) if number not in view.addresses]
            for connection in gone:
                self._past = [past + more for past, more in zip(self._past, connection.traffic, strict=True)]
                connection.end()
            self._do(self._client.view(view))
            for number, address in view.addresses.items():
                if number not in self._connections:
                    self._connections[number] = ServerConnection(number, address, self._connect, self)

    def push(self, number: int, clock: int, version: int, used: int, form: Form, length: int) -> None:
        """Contribute to a slice; what `buffers` lets leave for it must stay as it is until all of `clock` is held."""
        with self.changed:
            self._do(self._client.push(number, clock, version, used, form, length))

    def set(self, number: int, clock: int, length: int) -> None:
        """Give a slice its first values, as with `push`."""
        with self.changed:
            self._do(self._client.set(number, clock, length))

    def pull(self, number: int, at_least: int, snapshot: int = 0) -> None:
        """Ask for a slice's values, of version `at_least` or newer; snapshot: of the snapshot of that number."""
        with self.changed:
            self._do(self._client.pull(number, at_least, snapshot))

    def is_held(self, clock: int) -> bool:
        """Whether all of a contribution is held, and nothing of any is read any more."""
        return self._client.held(clock) and not any(self._reading.values())

    def is_free(self, clock: int) -> bool:
        """Whether all of what was pushed or set at this clock is held, and nothing of it is read any more."""
        return self._client.held(clock) and all(
            one != clock for reading in self._reading.values() for one, _ in reading
        )

    def check(self) -> None:
        """Raise the failure that ended the link, if one did."""
        if self._failure is not None:
            raise self._failure

    def wait_for(self, done: Callable[[], bool], what: Callable[[], str]) -> None:
        """Return when `done`, which is asked with `changed` held. what: it is that is awaited, in words.

        Raises PeerLost, or whatever went wrong meanwhile.
        """
        deadline, carried = time.monotonic() + WAIT_S, self.traffic
        with self.changed, self._awaiting(done):
            while not done():
                if self._failure is not None:
                    raise self._failure
                if self.changed.wait(max(0.0, deadline - time.monotonic())):
                    continue
                if self.traffic == carried:
                    raise PeerLost(f"{what()} did not come within {WAIT_S:.0f} s")
                deadline, carried = time.monotonic() + WAIT_S, self.traffic  # it comes slowly

    @contextlib.contextmanager
    def _awaiting(self, done: Callable[[], bool]) -> Iterator[None]:
        self._awaited.append(done)
        try:
            yield
        finally:
            self._awaited.remove(done)

    def _tell(self) -> None:
        """Wake whoever waits, if it is for nothing else: being woken costs more than this look."""
        if any(done() for done in self._awaited):
            self.changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """End the link: whoever waits now, or later, raises `failure`."""
        with self.changed:
            self._failure = self._failure or failure
            self.changed.notify_all()

    def close(self) -> None:
        """End all connections and their threads."""
        with self.changed:
            connections = list(self._connections.values())
        for connection in connections:
            connection.end()
        for connection in connections:
            connection.join()

    # What connections tell, see `volary.server.client.connection.Owner`

    def opened(self, server: int) -> None:
        with self.changed:
            self._reading[server] = set()
            self._do(self._client.connected(server))

    def lost(self, server: int) -> None:
        """Note that a server is gone, and what is asked of the others then."""
        with self.changed:
            self._reading.pop(server, None)
            self._do(self._client.lost(server))
            self.changed.notify_all()

    def leaving(self, server: int, header: Header) -> tuple[Header, Payload | None, Callable[[], None] | None]:
        """The payload of a push that leaves now."""
        if header.kind not in CARRYING:
            return header, None, None
        with self.changed:
            turn = header.clock, next(self._turns)
            self._reading.setdefault(server, set()).add(turn)
        return *self._buffers.leave(header), partial(self._read, server, turn)

    def carried(self, header: Header, sent: int, received: int) -> None:
        """It is counted where it is known what it was."""
        self._buffers.carried(header, sent, received)

    def place(self, server: int, header: Header) -> Payload | None:
        """Awaited values have theirs. Raises BadFrame for a length that does not fit."""
        if header.kind is MessageKind.VALUES:
            with self.changed:
                return self._buffers.place(header) if self._client.awaits(server, header) else None
        if header.kind is MessageKind.REFUSED and header.length <= REFUSAL_BYTES:
            return memoryview(bytearray(header.length))
        if header.length:
            raise BadFrame(f"{header.length} bytes follow a {header.kind.name}")
        return None

    def came(self, server: int, header: Header, payload: Payload | None) -> None:
        """Hand values on, and tell the client. Raises VolaryError if the server refused a message."""
        if header.kind is MessageKind.VALUES:
            with self.changed:
                wanted = self._client.awaits(server, header)
            if not wanted or payload is None:
                return
            self._buffers.landed(header, payload)
        if header.kind is MessageKind.REFUSED and not header.snapshot:
            why = "" if payload is None else bytes(payload).decode(errors="replace")
            raise VolaryError(f"server {server} refused what it was sent: {why}")
        with self.changed:
            self._do(self._client.received(server, header))

    def failed(self, problem: Exception) -> None:
        self.fail(problem)

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if (connection := self._connections.get(action.server)) is not None:
                    connection.say(self._turn(action.header), action.header)
            elif isinstance(action, HeldAll | Installed | RequestRefused):  # whoever waits, waits for one of these
                self._buffers.happened(action)
                self._tell()
            else:
                self._buffers.happened(action)

    def _turn(self, header: Header) -> tuple[int, int]:
        return (header.clock, self._urgency[header.slice]) if header.kind in CARRYING else NOW

    def _read(self, server: int, turn: tuple[int, int]) -> None:
        """Harmless when repeated, as where a connection breaks."""
        with self.changed:
            reading = self._reading.get(server, set())
            reading.discard(turn)
            if all(clock != turn[0] for clock, _ in reading):
                self._tell()
