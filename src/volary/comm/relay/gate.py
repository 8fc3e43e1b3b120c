"""The gate of a run: whoever proves the run's key to its one port reaches the run's processes through it."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused
from volary.comm.control.frames import decode_as
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Guest, Reception
from volary.comm.relay import messages
from volary.comm.relay.messages import ANSWER, GATE, HOST, Answer, Call, End, Hello, Listen, Reach, is_virtual
from volary.comm.relay.open_ends import OpenEnds
from volary.comm.relay.opening import require_spliced
from volary.comm.relay.streams import STILL_S, carry, carry_between
from volary.run.launch.invitation import SERVICE as INVITATION
from volary.run.launch.way import Way
from volary.run.machine.addresses import ipv4_addresses

CONNECT_S = 20.0
ANSWER_S = 60.0  # until somebody who was called answers
AGAIN_S = 1.0  # between two attempts to have a relay again
SILENCE_S = 30.0  # of a relay, which says something more often

_log = logging.getLogger(__name__)


class Gate:
    """Listens at `port` of `host`, if given, and at a relay, if one is given to `meet`.

    key: the run's. meeting: where the run's server is at this moment; who has only an invitation reaches nothing else.
    known: whether connections to this host are made: it is a machine of the run's.
    """

    def __init__(
        self, key: bytes, meeting: Callable[[], End], known: Callable[[str], bool], host: str, port: int = 0
    ) -> None:
        self._meeting, self._known = meeting, known
        self._listening: dict[str, Connection] = {}  # those with virtual addresses, by these
        self._called: dict[str, SimpleQueue[tuple[Connection, End]]] = {}
        self._changing, self._open = threading.Lock(), OpenEnds("volary-gate")
        services = {GATE: Reception(self._take), INVITATION: Reception(partial(self._take, invited=True))}
        self._server = KeyedServer(key, services, host, security="always", port=port)

    @property
    def address(self) -> End:
        """Where it listens; once it has started."""
        return self._server.address

    def start(self) -> None:
        """Begin to listen, in a thread of its own. Raises OSError."""
        self._server.start()

    def close(self) -> None:
        """End all that goes through it."""
        self._server.stop()
        self._open.close()

    def meet(self, relay: Way) -> None:
        """Meet guests at a relay, too, from now on. Raises ConnectionLost or KeyRefused if it cannot be reached now."""
        self._open.start(self._meet, relay, _hosted(relay))

    def _meet(self, relay: Way, control: Connection) -> None:
        while not self._open.closed.is_set():
            try:
                with self._open.using(control):
                    while True:
                        message = control.receive(SILENCE_S)
                        if "ticket" in message:
                            self._open.start(self._fetch, relay, str(message["ticket"]))
            except (ConnectionLost, BadFrame, TimeoutError) as problem:
                if not self._open.closed.is_set():
                    _log.warning("%s is lost (%s); trying again", relay.words, problem)
            while not self._open.closed.wait(AGAIN_S):
                with suppress(ConnectionLost, KeyRefused):
                    control = _hosted(relay)
                    break

    def _fetch(self, relay: Way, ticket: str) -> None:
        """Take the connection of a guest who waits at the relay."""
        try:
            hello = msgspec.to_builtins(messages.Ticket(ticket))
            connection = Connection.open(relay.host, relay.port, relay.key, ANSWER, hello, None, CONNECT_S, sealed=True)
            require_spliced(connection, CONNECT_S)
            connection.send({"ready": True})
        except (ConnectionLost, KeyRefused) as problem:
            _log.warning("%s: a guest was not met: %s", relay.words, problem)
            return
        self._server.adopt(connection.detach(), relay.host)

    def _take(self, guest: Guest, *, invited: bool = False) -> None:
        hello: Any = Reach(self._meeting()) if invited else decode_as(guest.hello, Hello)
        self._open.start(self._serve, Connection.taken_over(guest, STILL_S), hello)

    def _serve(self, connection: Connection, hello: Hello) -> None:
        if isinstance(hello, Answer):
            self._answered(connection, hello)
            return
        with suppress(ConnectionLost, BadFrame, TimeoutError), self._open.using(connection):
            if isinstance(hello, Listen):
                self._tell(connection, hello.host)
            elif is_virtual(hello.end[0]):
                self._call(connection, *hello.end)
            else:
                self._reach(connection, hello.end)

    def _tell(self, connection: Connection, host: str) -> None:
        """Let somebody be called who has a virtual address, until he goes."""
        if not is_virtual(host):
            _refuse(connection, f"{host} is no address to be called at; accepted: {messages.VIRTUAL}0.0 and above")
            return
        with self._changing:
            self._listening[host] = connection
        try:
            connection.send(messages.GateAddresses(ipv4_addresses()))
            while True:
                connection.receive(STILL_S)  # that he is there; his machine's end is seen by who trains with him
        finally:
            with self._changing:
                if self._listening.get(host) is connection:
                    del self._listening[host]

    def _reach(self, connection: Connection, end: End) -> None:
        host, port = end
        if end != self._meeting() and not self._known(host):
            _refuse(connection, f"{host}:{port} is not of this run")
            return
        try:
            sock = socket.create_connection((host, port), timeout=CONNECT_S)
            here = sock.getsockname()[:2]
        except OSError as problem:
            _refuse(connection, f"nobody answers at {host}:{port}: {problem}")
            return
        connection.send(messages.Reached(here))
        carry(sock, connection)

    def _call(self, connection: Connection, host: str, port: int) -> None:
        """Connect to somebody who is reached through this gate alone: he is called, and answers."""
        ticket, answers = secrets.token_hex(16), SimpleQueue[tuple[Connection, End]]()
        with self._changing:
            there = self._listening.get(host)
            self._called[ticket] = answers
        try:
            if there is None:
                _refuse(connection, f"{host} is not at this gate")
                return
            there.send(Call(port, ticket))
            other, end = answers.get(timeout=ANSWER_S)
        except Empty:
            _refuse(connection, f"{host} does not answer")
            return
        finally:
            with self._changing:
                self._called.pop(ticket, None)
        with self._open.using(other):
            connection.send(messages.Reached(end))
            carry_between(connection, other)

    def _answered(self, connection: Connection, hello: Answer) -> None:
        with self._changing:
            waiting = self._called.pop(hello.ticket, None)
        if waiting is None:
            connection.close()
        else:
            waiting.put((connection, hello.end))


def _refuse(connection: Connection, reason: str) -> None:
    connection.send(messages.NotReached(reason))


def _hosted(relay: Way) -> Connection:
    """The connection by which a relay tells who comes."""
    hello = {"gate": relay.gate}
    return Connection.open(relay.host, relay.port, relay.key, HOST, hello, None, CONNECT_S, sealed=True)
