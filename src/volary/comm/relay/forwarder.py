"""A process's way through a gate: addresses of its run are reached at ports of its own loopback, which lead there."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused
from volary.comm.relay.messages import (
    GATE,
    Answer,
    Call,
    End,
    GateAddresses,
    Hello,
    Listen,
    NotReached,
    Reach,
    Reached,
    Reply,
)
from volary.comm.relay.open_ends import OpenEnds
from volary.comm.relay.opening import answer_of, opened
from volary.comm.relay.streams import STILL_S, carry
from volary.run.launch.way import Way

LOOPBACK = "127.0.0.1"
CONNECT_S = 20.0
REACH_S = 90.0  # until the gate has reached somebody whom it has to call
AGAIN_S = 1.0
ALIVE_S = 10.0  # between two signs of life, which keep what is between from forgetting the connection

_log = logging.getLogger(__name__)
_own: Forwarder | None = None


def own() -> Forwarder | None:
    """The forwarder by which this process is in its run; None: it reaches all itself."""
    return _own


def use(forwarder: Forwarder) -> None:
    """Let this process reach its run through this one."""
    global _own
    _own = forwarder


def reachable(end: End) -> End:
    """Where this process connects to reach this end of its run."""
    return end if _own is None else _own.to(end)


class Forwarder:
    """key proves `service` to the gate. host: the virtual address at which this process's sockets listen, if any do."""

    def __init__(self, way: Way, key: bytes, service: str = GATE, host: str = "") -> None:
        self.host = host
        self.gate_addresses: list[str] = []  # of the gate's machine, once it is `called`
        self._way, self._key, self._service = way, key, service
        self._listeners: dict[End, socket.socket] = {}
        self._ends: dict[tuple[End, End], End | None] = {}  # of connections to our listeners: the gate's, or None
        self._changed = threading.Condition()
        self._open = OpenEnds("volary-forwarder")

    def be_called(self) -> None:
        """Let others connect to `host`, from now on. Raises ConnectionLost or KeyRefused if the gate is not reached."""
        self._open.start(self._answer_calls, self._listening())
        self._open.start(self._show_life)

    def require(self, end: End) -> None:
        """Raise ConnectionLost or KeyRefused, with the address that was tried, if this end is not reached."""
        with self._connected(Reach(end)) as connection:
            answer = self._answer_of(connection)
            if isinstance(answer, NotReached):
                raise ConnectionLost(f"{self._way.words}: {answer.reason}")

    def to(self, end: End) -> End:
        """The port here that leads to this end. Raises OSError."""
        with self._changed:
            if end not in self._listeners:
                listener = self._listeners[end] = socket.create_server((LOOPBACK, 0))
                self._open.start(self._accept, listener, end)
            return LOOPBACK, self._listeners[end].getsockname()[1]

    def shut(self, end: End) -> None:
        """Lead there no more; connections that stand go on."""
        with self._changed:
            listener = self._listeners.pop(end, None)
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def end_of(self, here: End, there: End, timeout_s: float = REACH_S) -> End:
        """The end that has connected to where `there`, a port of ours, leads to, for the connection from `here`.

        Raises ConnectionLost if it does not lead there.
        """
        with self._changed:
            known = self._changed.wait_for(lambda: (here, there) in self._ends, timeout_s)
            found = self._ends.pop((here, there)) if known else None
        if found is None:
            raise ConnectionLost(f"{self._way.words} did not bring a connection to another worker")
        return found

    def close(self) -> None:
        """Lead nowhere any more."""
        for end in [*self._listeners]:
            self.shut(end)
        self._open.close()

    def _connected(self, hello: Hello) -> Connection:
        return opened(self._way, self._key, self._service, hello, CONNECT_S)

    def _answer_of(self, connection: Connection) -> Reply:
        try:
            return answer_of(connection, CONNECT_S)
        except TimeoutError:
            return NotReached("it does not answer")

    def _accept(self, listener: socket.socket, end: End) -> None:
        there = listener.getsockname()[:2]
        while True:
            try:
                sock, here = listener.accept()
            except OSError:
                return
            self._open.start(self._carry, sock, (here[:2], there), end)

    def _carry(self, sock: socket.socket, pair: tuple[End, End], end: End) -> None:
        reached: End | None = None
        try:
            with self._open.using(sock), self._connected(Reach(end)) as connection:
                answer = answer_of(connection, REACH_S)
                if not isinstance(answer, Reached):
                    raise ConnectionLost(getattr(answer, "reason", str(answer)))
                reached = answer.end
                self._note(pair, reached)
                carry(sock, connection)
        except (ConnectionLost, KeyRefused, TimeoutError) as problem:
            if not self._open.closed.is_set():
                _log.warning("%s: %s", self._way.words, problem)
        if reached is None:
            self._note(pair, None)
        else:
            with self._changed:
                self._ends.pop(pair, None)  # nobody has asked

    def _note(self, pair: tuple[End, End], end: End | None) -> None:
        with self._changed:
            self._ends[pair] = end
            self._changed.notify_all()

    def _listening(self) -> Connection:
        """The connection by which the gate calls."""
        control = self._connected(Listen(self.host))
        answer = self._answer_of(control)
        if not isinstance(answer, GateAddresses):
            control.close()
            raise ConnectionLost(f"{self._way.words}: {getattr(answer, 'reason', answer)}")
        self.gate_addresses, self._control = answer.addresses, control
        return control

    def _answer_calls(self, control: Connection) -> None:
        while not self._open.closed.is_set():
            with suppress(ConnectionLost, TimeoutError), self._open.using(control):
                while True:
                    call = answer_of(control, STILL_S)
                    if isinstance(call, Call):
                        self._open.start(self._answer, call)
            while not self._open.closed.wait(AGAIN_S):
                with suppress(ConnectionLost, KeyRefused):
                    control = self._listening()
                    break

    def _answer(self, call: Call) -> None:
        try:
            sock = socket.create_connection((self.host, call.port), timeout=CONNECT_S)
            with self._open.using(sock):
                carry(sock, self._connected(Answer(call.ticket, sock.getsockname()[:2])))
        except (OSError, ConnectionLost, KeyRefused) as problem:
            _log.warning("%s called for %s:%d: %s", self._way.words, self.host, call.port, problem)

    def _show_life(self) -> None:
        while not self._open.closed.wait(ALIVE_S):
            with suppress(ConnectionLost):
                self._control.send({})
