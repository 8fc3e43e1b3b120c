"""One worker's connections to all servers: the threads and channels around a `Client`."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.errors import PeerLost, VolaryError
from volary.server.client.client import Event, Held, Installed, RequestRefused, SendToServer
from volary.server.client.connection import ServerConnection
from volary.server.protocol.header import Header, MessageKind

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel, Message, Payload
    from volary.server.client.client import Action, Client
    from volary.server.client.values import PulledValues, PushedValues
    from volary.server.protocol.to_members import View

WAIT_S = 600.0  # the watches beside the data path find who is lost within seconds; this bounds what they cannot see
GIVE_UP_S = 5.0  # without a connection, after which that is reported
LEAVE_S = 10.0  # for threads to end
REFUSAL_BYTES = 1024
CARRYING = (MessageKind.PUSH, MessageKind.SET)
NOW = (-1, 0)  # what is small goes first


@dataclass(frozen=True, slots=True)
class Leaving:
    """The contribution to a slice is put on the wire to one of its servers."""

    slice: int
    clock: int


@dataclass(frozen=True, slots=True)
class Carried:
    """An event: so many bytes of this message have gone over a wire."""

    header: Header
    sent: int
    received: int


LinkEvent: TypeAlias = Event | Leaving | Carried


class Link:
    """Carries what `client` wants sent, the most urgent first, and what servers answer.

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
        self._client, self._connect, self._unreachable = client, connect, unreachable
        self._notify: Callable[[LinkEvent], None] = lambda event: None
        self._urgency: Mapping[int, int] = {}
        self._connections: dict[int, ServerConnection] = {}
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None
        self._awaited: list[Callable[[], bool]] = []
        self._past = [0, 0]
        self._turns = itertools.count()
        self._reading: dict[int, set[tuple[int, int]]] = {}  # by server, pushes that a channel still reads, by clock
        self._pushed: dict[tuple[int, int], PushedValues] = {}  # by slice and clock, until all hold it
        self._pulled: dict[tuple[int, int], PulledValues] = {}  # by slice and snapshot, until they have come

    def start(self, notify: Callable[[LinkEvent], None], urgency: Mapping[int, int]) -> None:
        """Start, before the first view. notify: called with each event, by the link's threads; with `changed` held for
        what the client reports. urgency: by slice; the smaller, the sooner it is needed.
        """
        self._notify, self._urgency = notify, urgency

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
                    self._connections[number] = connection = ServerConnection(number, address, self._connect)
                    self._begin(partial(self._receive, connection), f"server-{number}-receives")
                    self._begin(partial(self._send, connection), f"server-{number}-sends")

    def push(self, number: int, clock: int, version: int, values: PushedValues) -> None:
        """Contribute to a slice; `values` must stay as they are until all of `clock` is held."""
        used = values.ready()
        with self.changed:
            self._pushed[number, clock] = values
            self._do(self._client.push(number, clock, version, used, values.form, values.length))

    def set(self, number: int, clock: int, values: PushedValues) -> None:
        """Give a slice its first values, as with `push`."""
        with self.changed:
            self._pushed[number, clock] = values
            self._do(self._client.set(number, clock, values.length))

    def pull(self, number: int, at_least: int, values: PulledValues, snapshot: int = 0) -> None:
        """Ask for a slice's values, of version `at_least` or newer; snapshot: of the snapshot of that number."""
        with self.changed:
            self._pulled[number, snapshot] = values
            self._do(self._client.pull(number, at_least, snapshot))

    def forget(self, number: int, snapshot: int = 0) -> None:
        """Read past values of a slice that come from now on, up to the next `pull`."""
        with self.changed:
            self._pulled.pop((number, snapshot), None)

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
                self.check()
                if self.changed.wait(max(0.0, deadline - time.monotonic())):
                    continue
                if self.traffic == carried:
                    raise PeerLost(f"{what()} did not come within {WAIT_S:.0f} s")
                deadline, carried = time.monotonic() + WAIT_S, self.traffic  # it comes slowly

    def fail(self, failure: Exception) -> None:
        """End the link: whoever waits now, or later, raises `failure`."""
        with self.changed:
            self._failure = self._failure or failure
            self.changed.notify_all()

    def close(self) -> None:
        """End all connections and their threads."""
        with self.changed:
            connections, threads = list(self._connections.values()), self._threads
        for connection in connections:
            connection.end()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(LEAVE_S)

    @contextlib.contextmanager
    def _awaiting(self, done: Callable[[], bool]) -> Iterator[None]:
        self._awaited.append(done)
        try:
            yield
        finally:
            self._awaited.remove(done)

    def _wake(self) -> None:
        """Wake whoever waits, if it is for nothing else: being woken costs more than this look."""
        if any(done() for done in self._awaited):
            self.changed.notify_all()

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendToServer):
                self._queue(action.server, action.header)
                continue
            if isinstance(action, Held):
                del self._pushed[action.slice, action.clock]
            elif isinstance(action, Installed | RequestRefused) and not self._client.pulling(
                action.slice, action.snapshot
            ):
                self._pulled.pop((action.slice, action.snapshot), None)
            self._notify(action)
            if not isinstance(action, Held):  # nobody waits for less than all of a contribution
                self._wake()

    def _queue(self, server: int, header: Header) -> None:
        if (connection := self._connections.get(server)) is None:
            return
        if header.kind in CARRYING:
            values = self._pushed[header.slice, header.clock]
            connection.queue((header.clock, self._urgency.get(header.slice, 0)), header, values)
        else:
            connection.queue(NOW, header)

    # The threads of a connection

    def _begin(self, work: Callable[[], None], name: str) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as problem:
                self.fail(problem)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _receive(self, connection: ServerConnection) -> None:
        server = connection.number
        while self._is_open(connection):
            with self.changed:
                self._reading[server] = set()
                self._do(self._client.connected(server))
            try:
                while True:
                    self._take(server, *connection.receive(partial(self._room, server)))
            except (ConnectionLost, BadFrame):
                connection.drop()
            with self.changed:
                self._reading.pop(server, None)
                self._do(self._client.lost(server))
                self.changed.notify_all()

    def _is_open(self, connection: ServerConnection) -> bool:
        """Whether a connection stands, once one does; False if none is wanted any more."""
        try:
            return connection.open(GIVE_UP_S)
        except TimeoutError:
            self._unreachable(connection.number)
            return connection.open(None)

    def _room(self, server: int, packed: bytes) -> Payload | None:
        """Where what follows a header is received; None to read past it. Raises BadFrame for a length that is wrong."""
        header = Header.unpack(packed)
        if header.kind is MessageKind.VALUES:
            values = self._values_awaited(server, header)
            return None if values is None else values.room(header)
        if header.kind is MessageKind.REFUSED and header.length <= REFUSAL_BYTES:
            return memoryview(bytearray(header.length))
        if header.length:
            raise BadFrame(f"{header.length} bytes follow a {header.kind.name}")
        return None

    def _take(self, server: int, message: Message, size_bytes: int) -> None:
        header = Header.unpack(message.header)
        try:
            self._notify(Carried(header, 0, size_bytes))
            self._arrived(server, header, message.payload)
        finally:
            message.release()

    def _arrived(self, server: int, header: Header, payload: Payload | None) -> None:
        """Fill the values that were awaited, and tell the client. Raises VolaryError for a message that was refused."""
        if header.kind is MessageKind.VALUES:
            values = self._values_awaited(server, header)
            if values is None or payload is None:
                return
            values.take(header, payload)
        if header.kind is MessageKind.REFUSED and not header.snapshot:
            why = "" if payload is None else bytes(payload).decode(errors="replace")
            raise VolaryError(f"server {server} refused what it was sent: {why}")
        with self.changed:
            self._do(self._client.received(server, header))

    def _values_awaited(self, server: int, header: Header) -> PulledValues | None:
        with self.changed:
            if not self._client.awaits(server, header):
                return None
            return self._pulled.get((header.slice, header.snapshot))

    def _send(self, connection: ServerConnection) -> None:
        while (message := connection.next()) is not None:
            header, read = message.header, None
            if message.values is not None:
                with self.changed:
                    turn = header.clock, next(self._turns)
                    self._reading.setdefault(connection.number, set()).add(turn)
                read = partial(self._read, connection.number, turn)
                self._notify(Leaving(header.slice, header.clock))
            self._notify(Carried(*message.send(read), 0))

    def _read(self, server: int, turn: tuple[int, int]) -> None:
        """A channel reads a push no more; harmless when repeated, as where a connection breaks."""
        with self.changed:
            reading = self._reading.get(server, set())
            reading.discard(turn)
            if all(clock != turn[0] for clock, _ in reading):
                self._wake()
