"""The handshake of a new connection: the proof of the key, then a hello from each side."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from volary.comm.channels.channel import Credentials
from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused
from volary.comm.control.frames import HEADER_BYTES, STRANGER_FRAME_BYTES, decode_as, encode
from volary.comm.control.handshake import ClientSide
from volary.comm.control.sealing import Seal, encrypts
from volary.comm.control.service import Guest

HANDSHAKE_S = 5.0  # from accepting a connection until its hello


def service(server: int) -> str:
    """The name of the service that a server proves to be."""
    return f"server {server}"


class Introduction(Struct, frozen=True, forbid_unknown_fields=True):
    """Each side's words about itself. machine: where it can share memory, "" if it does not want to."""

    hello: dict[str, Any]
    machine: str


@dataclass(frozen=True)
class ProvenPeer:
    """Whom a handshake has made known. outgoing, incoming: go on where it ended. sealed: encrypt payloads too."""

    outgoing: Seal
    incoming: Seal
    sealed: bool
    other: Introduction


def ask(sock: socket.socket, wanted: Credentials, own: Introduction, deadline: float) -> ProvenPeer:
    """The handshake of the side that connects, until `deadline` of the monotonic clock.

    Raises KeyRefused, OtherAttempt, ConnectionLost.
    """
    frames = _Frames(sock, deadline)
    address = frames.address()
    side = ClientSide(wanted.key, service(wanted.server), wanted.attempt_id, encrypts(wanted.security, address))
    try:
        frames.send(side.opening())
        frames.send(side.answer(frames.receive()))
        side.judge(frames.receive())
        keys = side.keys()
        outgoing, incoming = Seal(keys.outgoing), Seal(keys.incoming)
        frames.send(outgoing.seal_frame(encode(own)))
        return ProvenPeer(
            outgoing, incoming, side.sealed, decode_as(incoming.open_body(frames.receive()), Introduction)
        )
    except BadFrame as problem:
        raise KeyRefused(f"what listens at {address} is not of this run: {problem}") from None


def introduced(guest: Guest, own: Introduction, peer: Introduction) -> ProvenPeer:
    """The last word of the handshake of the side that listens. Raises ConnectionLost."""
    frames = _Frames(guest.sock, time.monotonic() + HANDSHAKE_S)
    frames.send(guest.outgoing.seal_frame(encode(own)))
    return ProvenPeer(guest.outgoing, guest.incoming, guest.sealed, peer)


class _Frames:
    """Frames over a socket until a deadline; never reads beyond the frame."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def address(self) -> str:
        """The other side's address. Raises ConnectionLost if that died before it took the connection."""
        with self._bounded():
            return str(self._sock.getpeername()[0])

    def send(self, frame: bytes) -> None:
        with self._bounded():
            self._sock.sendall(frame)

    def receive(self) -> bytes:
        """The next frame's body."""
        length = int.from_bytes(self._exactly(HEADER_BYTES), "big")
        if length > STRANGER_FRAME_BYTES:
            raise BadFrame(f"a frame announces {length} bytes; accepted: up to {STRANGER_FRAME_BYTES}")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            with self._bounded():
                data = self._sock.recv(size - len(found))
            if not data:
                raise ConnectionLost("the other side closed the connection before it had proved the key")
            found += data
        return found

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            self._sock.settimeout(max(0.001, self._deadline - time.monotonic()))
            yield
        except TimeoutError:
            raise ConnectionLost("the other side did not prove the key in time") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection broke before the key was proved: {problem}") from None
