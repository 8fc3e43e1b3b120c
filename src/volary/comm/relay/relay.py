"""A relay between machines that cannot reach each other: gates of runs wait there, and guests are brought to them.

It sees no plain byte of a run, and has none of their keys: gate and guest prove theirs to each other through it.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import Annotated

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, BadMessage, ConnectionLost
from volary.comm.control.frames import decode_as
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Guest, Reception
from volary.comm.relay.messages import ANSWER, HOST, Spliced, Ticket
from volary.comm.relay.streams import splice
from volary.run.launch.way import GUEST

SEND_S = 10.0
ANSWER_S = 30.0  # until the gate has fetched a guest
LIFE_S = 10.0  # between two signs of life to a gate
MOST_WAITING = 256  # guests who wait for a gate

_log = logging.getLogger(__name__)


class HostHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gate waits for guests here, by this name."""

    gate: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Relay:
    """Listens at `port` of `host`. key: its own; guests have one that is made of it and of their gate's name."""

    def __init__(self, key: bytes, host: str, port: int) -> None:
        self._gates: dict[str, Connection] = {}
        self._waiting: dict[str, Connection] = {}  # guests, by ticket
        self._changing, self._closed = threading.Lock(), threading.Event()
        services = {HOST: Reception(self._host), GUEST: Reception(self._guest), ANSWER: Reception(self._answer)}
        self._server = KeyedServer(key, services, host, security="always", port=port)

    @property
    def address(self) -> tuple[str, int]:
        return self._server.address

    def start(self) -> None:
        """Listen. Raises OSError."""
        self._server.start()
        threading.Thread(target=self._live, name="volary-relay", daemon=True).start()

    def close(self) -> None:
        """Bring nobody together any more."""
        self._closed.set()
        self._server.stop()
        with self._changing:
            connections = [*self._gates.values(), *self._waiting.values()]
        for connection in connections:
            connection.close()

    def _live(self) -> None:
        """Let gates see that the relay lives, and what is between keep its connections; forget gates that are gone."""
        while not self._closed.wait(LIFE_S):
            with self._changing:
                gates = [*self._gates.items()]
            for name, gate in gates:
                self._say(name, gate, {})

    def _say(self, name: str, gate: Connection, message: object) -> bool:
        """Whether the gate was told."""
        try:
            gate.send(message)
        except ConnectionLost:
            with self._changing:
                if self._gates.get(name) is gate:
                    del self._gates[name]
            gate.close()
            return False
        return True

    def _host(self, guest: Guest) -> None:
        name = decode_as(guest.hello, HostHello).gate
        connection = Connection.taken_over(guest, SEND_S)
        with self._changing:
            before, self._gates[name] = self._gates.get(name), connection
        if before is not None:
            before.close()

    def _guest(self, guest: Guest) -> None:
        self._apart(self._bring, guest, guest.terms)

    def _bring(self, guest: Guest, name: str) -> None:
        """Tell a gate that somebody waits for it, until it has fetched him."""
        connection, ticket = Connection.taken_over(guest, SEND_S), secrets.token_hex(16)
        with self._changing:
            gate = self._gates.get(name) if len(self._waiting) < MOST_WAITING else None
            if gate is not None:
                self._waiting[ticket] = connection
        if gate is None or not self._say(name, gate, Ticket(ticket)):
            self._forget(ticket, connection, "no gate of the run is at the relay: it has ended, or is starting")
            return
        deadline = time.monotonic() + ANSWER_S
        while ticket in self._waiting and time.monotonic() < deadline:
            self._closed.wait(0.5)
        self._forget(ticket, connection, "the run's gate does not answer the relay")

    def _forget(self, ticket: str, connection: Connection, reason: str) -> None:
        with self._changing:
            waits = self._waiting.pop(ticket, None) is not None or reason.startswith("no gate")
        if waits:
            with connection:
                _try(connection, Spliced(reason))

    def _answer(self, guest: Guest) -> None:
        self._apart(self._join, guest, decode_as(guest.hello, Ticket).ticket)

    def _join(self, guest: Guest, ticket: str) -> None:
        gate = Connection.taken_over(guest, SEND_S)
        with self._changing:
            waiting = self._waiting.pop(ticket, None)
        if waiting is None:
            with gate:
                _try(gate, Spliced("nobody waits with this ticket any more"))
            return
        try:
            gate.send(Spliced())
            gate.receive(SEND_S)  # it is ready: what follows is not ours to read
            waiting.send(Spliced())
        except (ConnectionLost, BadFrame, TimeoutError):
            gate.close()
            waiting.close()
            return
        splice(gate.detach(), waiting.detach())

    def _apart(self, function: object, *arguments: object) -> None:
        try:
            threading.Thread(target=function, args=arguments, name="volary-relay", daemon=True).start()  # type: ignore
        except RuntimeError as problem:
            raise BadMessage(str(problem)) from None


def _try(connection: Connection, message: object) -> None:
    try:
        connection.send(message)
    except ConnectionLost as problem:
        _log.info("%s", problem)
