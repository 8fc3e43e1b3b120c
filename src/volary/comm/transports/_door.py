"""Where channels are accepted: a listening socket, a thread that accepts, and one for each connection's handshake."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

from volary.comm.errors import BadFrame, BadMessage, ConnectionLost

HANDSHAKE_S = 5.0  # from accepting a connection until its hello
STRANGERS = 64  # connections that have not proved the key; one more, and the oldest of them goes
_ADDRESSES = 1024  # distinct addresses whose refusals are counted; those that come later share one count
_REST_S = 0.1  # without descriptors: how long nobody is accepted

_log = logging.getLogger(__name__)


class Door:
    """Listens on a free port of `host`. Raises OSError.

    welcome: called with each connection, its address and the deadline of its handshake, in a thread of its own; returns
    what to go on with in that thread once the other side is known, and raises CommErrors for those who are turned away.
    """

    def __init__(self, host: str, welcome: Callable[[socket.socket, str, float], Callable[[], None]]) -> None:
        self.refusals: Counter[str] = Counter()
        self._welcome = welcome
        self._strangers: dict[socket.socket, str] = {}  # oldest first
        self._lock = threading.Lock()
        self._closed = False
        self._socket = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name="volary-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more; channels that stand go on, handshakes that do not are cut. Harmless when repeated."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._socket.close()
        with self._lock:
            for plug in self._strangers:
                _cut(plug)

    def _accept(self) -> None:
        while not self._closed:
            try:
                plug, address = self._socket.accept()
            except OSError:
                if not self._closed:  # no descriptor is left, or whoever knocked has gone
                    self._let_the_oldest_go()
                    time.sleep(_REST_S)
                continue
            with self._lock:
                self._strangers[plug] = str(address[0])
                crowded = len(self._strangers) > STRANGERS
            if crowded:
                self._let_the_oldest_go()
            threading.Thread(
                target=self._meet, args=(plug, str(address[0])), name="volary-channel", daemon=True
            ).start()

    def _meet(self, plug: socket.socket, address: str) -> None:
        try:
            go_on = self._welcome(plug, address, time.monotonic() + HANDSHAKE_S)
        except (BadFrame, BadMessage, ConnectionLost) as problem:
            self._forget(plug)
            plug.close()
            self._count(address, str(problem))
            return
        self._forget(plug)
        go_on()

    def _forget(self, plug: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(plug, None)

    def _let_the_oldest_go(self) -> None:
        with self._lock:
            if self._strangers:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                _cut(oldest)

    def _count(self, address: str, reason: str) -> None:
        with self._lock:
            if address not in self.refusals and len(self.refusals) >= _ADDRESSES:
                address = "(others)"
            self.refusals[address] += 1
            first = self.refusals[address] == 1
        if first:
            _log.warning("turned away %s: %s (said once)", address, reason)


def _cut(plug: socket.socket) -> None:
    with contextlib.suppress(OSError):
        plug.shutdown(socket.SHUT_RDWR)  # its own thread closes it
