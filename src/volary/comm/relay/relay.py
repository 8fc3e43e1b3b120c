"""A relay between machines that cannot reach each other: gates of runs wait there, and guests are brought to them.

It sees no plain byte of a run, and has none of their keys: gate and guest prove theirs to each other through it.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.control.frames import decode_as
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Guest, Reception
from volary.comm.relay.messages import ANSWER, HOST, Spliced, Ticket
from volary.comm.relay.open_ends import OpenEnds
from volary.comm.relay.streams import splice
from volary.run.launch.way import GUEST

SEND_S = 10.0
ANSWER_S = 30.0  # until the gate has fetched a guest
LIFE_S = 10.0  # between two signs of life to a gate
MOST_WAITING = 256  # guests who wait for a gate


class HostHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gate waits for guests here, by this name."""

    gate: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Relay:
    """Listens at `port` of `host`. key: its own; guests have one that is made of it and of their gate's name."""

    def __init__(self, key: bytes, host: str, port: int) -> None:
        self._gates: dict[str, Connection] = {}
        self._waiting: dict[str, SimpleQueue[Connection]] = {}  # for the gates of guests, by ticket
        self._changing, self._open = threading.Lock(), OpenEnds("volary-relay")
        services = {HOST: Reception(self._host), GUEST: Reception(self._guest), ANSWER: Reception(self._answer)}
        self._server = KeyedServer(key, services, host, security="always", port=port)

    @property
    def address(self) -> tuple[str, int]:
        return self._server.address

    def start(self) -> None:
        """Begin to listen, in threads of its own. Raises OSError."""
        self._server.start()
        self._open.start(self._live)

    def close(self) -> None:
        """Bring nobody together any more."""
        self._server.stop()
        self._open.close()
        for gate in self._gates.values():
            gate.close()

    def _live(self) -> None:
        """Let gates see that the relay lives, and what is between keep its connections; forget gates that are gone."""
        while not self._open.closed.wait(LIFE_S):
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
        self._open.start(self._bring, Connection.taken_over(guest, SEND_S), guest.terms)

    def _bring(self, guest: Connection, name: str) -> None:
        """Tell a gate that somebody waits for it, and let the two speak once it has come."""
        ticket, answers = secrets.token_hex(16), SimpleQueue[Connection]()
        with suppress(ConnectionLost, BadFrame, TimeoutError), self._open.using(guest):
            with self._changing:
                gate = self._gates.get(name) if len(self._waiting) < MOST_WAITING else None
                self._waiting[ticket] = answers
            try:
                if gate is None or not self._say(name, gate, Ticket(ticket)):
                    guest.send(Spliced("no gate of the run is at the relay: it has ended, or the relay is full"))
                    return
                fetched = answers.get(timeout=ANSWER_S)
            except Empty:
                guest.send(Spliced("the run's gate does not answer the relay"))
                return
            finally:
                with self._changing:
                    del self._waiting[ticket]
            with self._open.using(fetched):
                fetched.send(Spliced())
                fetched.receive(SEND_S)  # it is ready: what follows is not ours to read
                guest.send(Spliced())
                splice(fetched.detach(), guest.detach())

    def _answer(self, guest: Guest) -> None:
        ticket, gate = decode_as(guest.hello, Ticket).ticket, Connection.taken_over(guest, SEND_S)
        with self._changing:
            waiting = self._waiting.get(ticket)
        if waiting is None:
            gate.close()  # nobody waits with it any more
        else:
            waiting.put(gate)
