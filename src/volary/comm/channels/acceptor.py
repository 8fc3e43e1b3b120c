"""Accepts channels: one thread for all who have not proved the key, and then one for each."""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from volary.comm.channels.channel import Credentials
from volary.comm.channels.introduction import HANDSHAKE_S, Introduction, ProvenPeer, introduced, service
from volary.comm.control.errors import BadMessage, ConnectionLost
from volary.comm.control.frames import decode_as
from volary.comm.control.server import KeyedServer, Limits
from volary.comm.control.service import Guest, Reception

_LIMITS = Limits(handshake_s=HANDSHAKE_S, tick_s=0.5)

_log = logging.getLogger(__name__)


Welcome: TypeAlias = Callable[[socket.socket, str, ProvenPeer], None]


class Acceptor:
    """Listens on a free port of `host`. Raises OSError, and BadInput if the key is none.

    introduction: said to whoever has proved the key. welcome: called with each connection whose other side is known,
    its address and who that is, in a thread of its own, which ends with the call.
    """

    def __init__(self, host: str, own: Credentials, introduction: Introduction, welcome: Welcome) -> None:
        services = {service(own.server): Reception(partial(_take, introduction, welcome))}
        self._server = KeyedServer(own.key, services, host, own.attempt_id, _LIMITS, own.security).start()
        self.address: tuple[str, int] = self._server.address
        self.refusals: Counter[str] = self._server.refusals

    def close(self) -> None:
        """Accept no more; channels that stand go on, handshakes that do not are cut. Harmless when repeated."""
        self._server.stop()


def _take(introduction: Introduction, welcome: Welcome, guest: Guest) -> None:
    peer = decode_as(guest.hello, Introduction)

    def meet() -> None:
        try:
            known = introduced(guest, introduction, peer)
        except ConnectionLost as problem:
            guest.sock.close()
            _log.warning("%s proved the key, and then: %s", guest.address, problem)
            return
        welcome(guest.sock, guest.address, known)

    try:
        threading.Thread(target=meet, name="volary-channel", daemon=True).start()
    except RuntimeError as problem:  # the system gives no thread now: whoever has the key tries again
        raise BadMessage(str(problem)) from None
