"""A run's only listening socket: one thread that carries services to those who prove the run's key."""

from __future__ import annotations

import contextlib
import errno
import logging
import secrets
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Self

from volary.comm.control.errors import BadFrame, BadMessage, ConnectionLost
from volary.comm.control.frames import decode, encode
from volary.comm.control.handshake import ServerSide, checked_key
from volary.comm.control.peer import Peer
from volary.comm.control.sealing import Security, encrypts
from volary.comm.control.service import CLOSE, GiveUpAfter, Reception, Replies, Service

_log = logging.getLogger(__name__)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ADDRESSES = 1024  # distinct addresses whose refusals are counted; those that come later share one count
_LONGEST_LINGER = 10  # times `linger_s`: a peer that reads a byte now and then does not keep a run from ending
_ACCEPTS = 32  # connections taken in one go, so that a flood leaves time for the peers we have


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of a server, in seconds, connections and bytes."""

    handshake_s: float = 5.0  # from accepting a connection until its hello
    strangers: int = 256  # connections that have not yet proved the key; one more, and the oldest of them goes
    output_bytes: int = 64 * 2**20  # what waits for a peer that does not read; above it the peer is dropped
    tick_s: float = 0.1  # between two ticks of a service
    exhausted_s: float = 0.1  # without descriptors: how long nobody is accepted
    linger_s: float = 1.0  # at the end: how long to wait while nothing of the output leaves, ten times that in all


def listening(host: str, port: int = 0) -> socket.socket:
    """A socket that listens on a port of `host`, 0: a free one. Raises OSError if that is not an address of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


class KeyedServer:
    """Serves `services`, by name, on `port` of `host`, 0 for a free one. Services are called from its one thread only.

    attempt_id: what this server proves to be (made up if None). security: what is encrypted, whatever the clients want.
    `refusals` counts by address who was turned away or left without proving the key. Raises BadInput if it is none.
    """

    def __init__(
        self,
        key: bytes,
        services: Mapping[str, Service | Reception],
        host: str = "127.0.0.1",
        attempt_id: str | None = None,
        limits: Limits | None = None,
        security: Security = "encrypted",
        port: int = 0,
    ) -> None:
        self.attempt_id = attempt_id or secrets.token_hex(8)
        self.refusals: Counter[str] = Counter()
        self._key, self._host, self._port, self._security = checked_key(key), host, port, security
        self._services = {name: one for name, one in services.items() if not isinstance(one, Reception)}
        self._receptions = {name: one for name, one in services.items() if isinstance(one, Reception)}
        self._known = frozenset(services)
        self._limits = limits or Limits()
        self._peers: dict[int, Peer] = {}
        self._strangers: dict[int, Peer] = {}  # those of _peers that have not proved the key, oldest first
        self._silent: dict[int, Peer] = {}  # those that have, and have yet to say hello
        self._outbox: deque[tuple[int, Any]] = deque()
        self._doomed: deque[tuple[Peer, str, bool]] = deque()
        self._calls: deque[Callable[[], Replies]] = deque()  # filled by other threads
        self._last_number = 0
        self._next_tick = self._accept_from = 0.0
        self._listening = self._stopping = False
        self._thread: threading.Thread | None = None
        self._waker: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self._logged: set[str] = set()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients connect to; only after `start`."""
        assert self._address, "the server has not been started"
        return self._address

    def start(self, listener: socket.socket | None = None) -> Self:
        """Serve from a thread of its own on a socket that listens: `listener`, which it closes, or one of `host`.

        Raises OSError if `host` is not an address of ours.
        """
        self._listener = listener or listening(self._host, self._port)
        self._listener.setblocking(False)
        self._address = self._listener.getsockname()[:2]
        self._wakened, self._waker = socket.socketpair()
        self._wakened.setblocking(False)
        self._waker.setblocking(False)
        self._wake()  # for calls that came before the start
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakened, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="volary-server", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send what waits (see `Limits.linger_s`), close everything, join the thread. Harmless when repeated."""
        if self._thread is None:
            return
        self._stopping = True
        self._wake()
        self._thread.join()
        self._thread = None
        if self._waker is not None:
            self._waker.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def post(self, peer: int, message: Any) -> None:
        """Send a message to a peer, from any thread; nothing happens if it is gone."""
        self.call_soon(lambda: [(peer, message)])

    def adopt(self, sock: socket.socket, address: str) -> None:
        """Take a connection, from any thread, as if it had come to the port. address: who is at its other end."""
        self.call_soon(lambda: self._admit(sock, address))

    def call_soon(self, call: Callable[[], Replies | None]) -> None:
        """Run `call` in the server's thread, from any thread, and send the replies it returns."""
        self._calls.append(lambda: call() or ())
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            with contextlib.suppress(OSError):  # full: it is awake already; closed: nobody is there any more
                self._waker.send(b"\0")

    # From here on everything runs in the server's thread.

    def peer_addresses(self) -> set[str]:
        """The addresses from which services are used at this moment."""
        return {peer.address for peer in self._peers.values() if peer.opened}

    def _serve(self) -> None:
        try:
            while not self._stopping:
                now = time.monotonic()
                self._mind_the_clock(now)
                for key, events in self._selector.select(max(0.0, self._next_tick - now)):
                    self._handle(key.fileobj, key.data, events)
                self._settle()
            self._linger()
        finally:
            for peer in self._peers.values():
                peer.sock.close()
            self._selector.close()
            self._listener.close()
            self._wakened.close()

    def _handle(self, sock: Any, peer: Peer | None, events: int) -> None:
        if peer is not None:
            if peer.number in self._peers:  # not dropped by something that happened in the same round
                self._attend(peer, events)
        elif sock is self._listener:
            self._accept()
        else:
            self._answer_calls()

    def _mind_the_clock(self, now: float) -> None:
        if now < self._next_tick:
            return
        self._next_tick = now + self._limits.tick_s
        if not self._listening and now >= self._accept_from:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            self._listening = True
        for late in (self._strangers, self._silent):
            for peer in late.values():
                if now >= peer.deadline:
                    self._doom(peer, f"proved nothing in {self._limits.handshake_s:g} s")
        for peer in self._peers.values():
            if peer.closing and now >= peer.deadline:
                self._doom(peer, "does not read its last messages")
        for service in self._services.values():
            self._ask(None, service.tick, now)
        self._settle()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, address = self._listener.accept()
            except OSError as problem:
                if problem.errno not in _EXHAUSTED:
                    return  # nobody waits, or whoever did has left
                if not self._make_room("no descriptor was left"):
                    self._rest(problem)
                    return
                continue
            if len(self._strangers) >= self._limits.strangers:
                self._make_room("too many strangers at once")
            self._admit(sock, str(address[0]))

    def _admit(self, sock: socket.socket, address: str) -> None:
        self._last_number += 1
        side = ServerSide(self._key, self.attempt_id, self._known, encrypts(self._security, address))
        try:
            peer = Peer(self._last_number, sock, address, side, time.monotonic() + self._limits.handshake_s)
        except OSError:  # it is gone already
            sock.close()
            return
        self._peers[peer.number] = self._strangers[peer.number] = peer
        self._selector.register(sock, peer.events, peer)

    def _make_room(self, reason: str) -> bool:
        """Let go of the oldest stranger; False if there is none."""
        if not self._strangers:
            return False
        self._bury(next(iter(self._strangers.values())), reason, blame=True)
        return True

    def _rest(self, problem: OSError) -> None:
        """Without descriptors a waiting connection would wake us for ever: stop listening for a moment."""
        self._log_once("accept", f"nobody can be accepted for now: {problem}")
        self._selector.unregister(self._listener)
        self._listening = False
        self._accept_from = time.monotonic() + self._limits.exhausted_s

    def _attend(self, peer: Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                peer.flush()
            if events & selectors.EVENT_READ:
                peer.read()
                while peer.number in self._peers and (body := peer.take()) is not None:
                    self._receive(peer, body)
        except ConnectionLost:
            self._doom(peer, "")  # who leaves was not turned away: a worker that is ended while it proves itself, say
        except (BadFrame, BadMessage) as problem:
            self._doom(peer, str(problem), blame=True)
        else:
            if peer.number in self._peers:  # it was not handed over
                self._watch(peer)

    def _receive(self, peer: Peer, body: bytes) -> None:
        now = time.monotonic()
        name = peer.side.service
        if name is None:
            frame, refusal = peer.side.receive(body)
            peer.send(frame, self._limits.output_bytes)
            if refusal:
                raise BadMessage(refusal)
            if peer.side.service is not None:
                peer.trust(leaves=peer.side.service in self._receptions)
                self._silent[peer.number] = self._strangers.pop(peer.number)
        elif name in self._receptions:
            self._hand_over(peer, self._receptions[name], body)
        elif peer.opened:
            self._ask(peer, self._services[name].received, peer.number, decode(body), now)
        else:
            hello = decode(body)
            if not isinstance(hello, dict):
                raise BadMessage("its hello is no mapping")
            del self._silent[peer.number]
            peer.opened = True
            proved = {"terms": peer.side.terms} if peer.side.terms else {}
            self._ask(peer, self._services[name].opened, peer.number, hello | proved, now)

    def _hand_over(self, peer: Peer, reception: Reception, hello: bytes) -> None:
        guest = peer.leave(hello)
        self._selector.unregister(peer.sock)
        try:
            reception.take(guest)
        except (BadFrame, BadMessage):
            self._selector.register(peer.sock, peer.events, peer)  # to be buried as others are
            raise
        del self._peers[peer.number], self._silent[peer.number]

    def _ask(self, peer: Peer | None, method: Callable[..., Replies], *arguments: Any) -> None:
        """Call a service. What it did not mean to raise is our bug: logged, and only this peer pays for it."""
        try:
            self._outbox.extend(method(*arguments))
        except BadMessage:
            raise
        except Exception as problem:
            of = "" if peer is None else f" on a message of {peer.address}"
            sentence = f"a service failed{of}: {type(problem).__name__}: {problem}"
            self._log_once(method.__qualname__, sentence, trace=True)  # who is turned away may say it again and again
            if peer is None:
                return
            raise BadMessage(f"{type(problem).__name__} in its service") from None

    def _answer_calls(self) -> None:
        try:
            while self._wakened.recv(4096):
                pass
        except BlockingIOError:
            pass
        while self._calls:
            self._ask(None, self._calls.popleft())

    def _settle(self) -> None:
        """Send all replies and bury all who are doomed, also those that these two bring about."""
        while self._doomed or self._outbox:
            if self._doomed:
                self._bury(*self._doomed.popleft())
            else:
                self._deliver(*self._outbox.popleft())

    def _deliver(self, number: int, message: Any) -> None:
        peer = self._peers.get(number)
        if peer is None or peer.closing:
            return
        try:
            if message is CLOSE:
                peer.closing, peer.deadline = True, time.monotonic() + self._limits.handshake_s
            elif isinstance(message, GiveUpAfter):
                peer.give_up_after(message.seconds)
            else:
                peer.send(encode(message), self._limits.output_bytes)
        except (BadFrame, ConnectionLost) as problem:
            self._doom(peer, str(problem))
        else:
            self._watch(peer)

    def _watch(self, peer: Peer) -> None:
        if peer.closing and not peer.waiting_bytes:
            self._doom(peer, "")
        elif self._selector.get_key(peer.sock).events != peer.events:
            self._selector.modify(peer.sock, peer.events, peer)

    def _doom(self, peer: Peer, reason: str, *, blame: bool = False) -> None:
        self._doomed.append((peer, reason, blame))

    def _bury(self, peer: Peer, reason: str, blame: bool) -> None:
        if self._peers.pop(peer.number, None) is None:
            return
        self._selector.unregister(peer.sock)
        peer.sock.close()
        self._silent.pop(peer.number, None)
        if self._strangers.pop(peer.number, None) is not None or blame:
            self._count(peer.address, reason)
        if peer.opened and peer.side.service is not None:
            self._ask(None, self._services[peer.side.service].closed, peer.number, time.monotonic())

    def _count(self, address: str, reason: str) -> None:
        if address not in self.refusals and len(self.refusals) >= _ADDRESSES:
            address = "(others)"
        self.refusals[address] += 1
        if reason:
            self._log_once(address, f"turned away {address}: {reason}")

    def _log_once(self, about: str, sentence: str, *, trace: bool = False) -> None:
        if about not in self._logged:  # bounded: by the addresses that are counted, and the services' methods
            self._logged.add(about)
            _log.warning("%s (said once)", sentence, exc_info=trace)

    def _linger(self) -> None:
        self._answer_calls()
        self._settle()
        idle_s, fewest = self._limits.linger_s, inf
        deadline = last = time.monotonic() + _LONGEST_LINGER * idle_s
        while (late := [p for p in self._peers.values() if p.waiting_bytes]) and time.monotonic() < deadline:
            if (waiting := sum(peer.waiting_bytes for peer in late)) < fewest:
                fewest, deadline = waiting, min(last, time.monotonic() + idle_s)
            for key, events in self._selector.select(0.05):
                if key.data in late and events & selectors.EVENT_WRITE:
                    self._attend(key.data, selectors.EVENT_WRITE)
            self._settle()
