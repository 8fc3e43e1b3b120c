"""Both sides prove that they have the run's key, and neither sends it (HMAC-SHA256 over fresh nonces). No I/O here.

    client → server   Opening: service, nonce, the life of the run that the client belongs to, whether to encrypt
    server → client   Challenge: nonce, the server's life
    client → server   Answer: proof as client
    server → client   Verdict: proof as server, and whether it is a yes
    client → server   the hello of the service: the first ordinary message, encrypted if that was agreed

A proof covers the role, what the server says, both nonces, the service, the life and whether to encrypt: it fits no
other connection, direction, service or life, and nobody on the way can talk two ends out of encrypting. The server
proves itself only to those who have proved the key. Both sides then derive a key for each direction, in the same way.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Container
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from volary.comm.errors import BadFrame, KeyRefused, OtherLife
from volary.comm.frames import decode_as, encode
from volary.errors import BadInput

VERSION = 2
NONCE_BYTES = 32
_DIRECTIONS = ("server", "client")
_REFUSALS = {
    "": "",
    "life": "no such life here",
    "service": "no such service here",
    "plain": "wants to talk in the clear",
}
KEY_BYTES = 16  # the shortest key that is accepted


class Opening(Struct, frozen=True, forbid_unknown_fields=True):
    """The client's first frame."""

    version: int
    service: str
    nonce: bytes
    life: str | None
    sealed: bool


class Challenge(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's answer to any well-formed opening."""

    nonce: bytes
    life: str


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """The client's proof."""

    proof: bytes


class Verdict(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's decision. refused: "", or "key" (then without a proof), "life", "service" or "plain"."""

    refused: str
    proof: bytes


def checked_key(key: bytes) -> bytes:
    """`key` if it can be one. Raises BadInput otherwise."""
    if len(key) < KEY_BYTES:
        raise BadInput(f"the run's key has {len(key)} bytes; accepted: at least {KEY_BYTES}")
    return key


def prove(key: bytes, role: str, opening: Opening, challenge: Challenge) -> bytes:
    """HMAC-SHA256 of all that was agreed, each part preceded by its length so that parts cannot be shifted."""
    sealed = "sealed" if opening.sealed else "plain"
    parts = (f"volary {VERSION} {role}", opening.nonce, challenge.nonce, opening.service, challenge.life, sealed)
    mac = hmac.new(key, digestmod=sha256)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        mac.update(len(data).to_bytes(4, "big") + data)
    return mac.digest()


class DirectionKeys(NamedTuple):
    """Keys of one connection, for whoever sends and whoever receives: each side has those of the other, swapped."""

    outgoing: bytes
    incoming: bytes


class ServerSide:
    """One connection's handshake as the server sees it: `receive` frames until `service` is set.

    sealed_only: refuse clients that do not want to encrypt.
    """

    def __init__(self, key: bytes, life: str, services: Container[str], sealed_only: bool) -> None:
        self.service: str | None = None  # set once the client has proved the key and asked for what there is
        self.sealed = False
        self._key, self._life, self._services, self._sealed_only = key, life, services, sealed_only
        self._opening: Opening | None = None
        self._challenge = Challenge(secrets.token_bytes(NONCE_BYTES), life)

    def receive(self, body: bytes) -> tuple[bytes, str]:
        """The frame to send and the reason to close after it ("" to go on). Raises BadFrame on anything unexpected."""
        if self._opening is None:
            opening: Opening = decode_as(body, Opening)
            if opening.version != VERSION or len(opening.nonce) != NONCE_BYTES:
                raise BadFrame(f"an opening of version {opening.version}; accepted: {VERSION}")
            self._opening = opening
            return encode(self._challenge), ""
        return self._judge(self._opening, decode_as(body, Answer).proof)

    def _judge(self, opening: Opening, proof: bytes) -> tuple[bytes, str]:
        if not hmac.compare_digest(proof, prove(self._key, "client", opening, self._challenge)):
            return encode(Verdict("key", b"")), "wrong proof of the key"
        refused = ""
        if opening.life not in (None, self._life):
            refused = "life"
        elif opening.service not in self._services:
            refused = "service"
        elif self._sealed_only and not opening.sealed:
            refused = "plain"
        else:
            self.service, self.sealed = opening.service, opening.sealed
        own = prove(self._key, f"server {refused}", opening, self._challenge)
        return encode(Verdict(refused, own)), _REFUSALS[refused]

    def keys(self) -> DirectionKeys:
        """For what follows, once the service is known."""
        assert self._opening, "the client has not opened the handshake"
        server, client = (_direction_key(self._key, one, self._opening, self._challenge) for one in _DIRECTIONS)
        return DirectionKeys(server, client)


class ClientSide:
    """A client's handshake: send `opening`, then what `answer` gives, then `judge` the verdict."""

    def __init__(self, key: bytes, service: str, life: str | None, sealed: bool) -> None:
        self.sealed = sealed
        self._key = checked_key(key)
        self._opening = Opening(VERSION, service, secrets.token_bytes(NONCE_BYTES), life, sealed)
        self._challenge = Challenge(b"", "")

    def opening(self) -> bytes:
        """The first frame."""
        return encode(self._opening)

    def answer(self, body: bytes) -> bytes:
        """The frame that proves the key to the server that sent this challenge. Raises BadFrame if it is none."""
        self._challenge = decode_as(body, Challenge)
        if len(self._challenge.nonce) != NONCE_BYTES:
            raise BadFrame(f"a challenge of {len(self._challenge.nonce)} bytes; accepted: {NONCE_BYTES}")
        return encode(Answer(prove(self._key, "client", self._opening, self._challenge)))

    def judge(self, body: bytes) -> str:
        """The server's life, once it has proved the key and agreed. Raises KeyRefused, OtherLife or BadFrame."""
        verdict: Verdict = decode_as(body, Verdict)
        if verdict.refused == "key":
            raise KeyRefused("the server says that this is not the run's key")
        own = prove(self._key, f"server {verdict.refused}", self._opening, self._challenge)
        if not hmac.compare_digest(verdict.proof, own):
            raise KeyRefused("the server does not prove that it has the run's key")
        if verdict.refused == "life":
            raise OtherLife(f"the server is of life {self._challenge.life}, this process of life {self._opening.life}")
        if verdict.refused == "plain":
            raise KeyRefused("the server wants what is said to be encrypted, and this process does not")
        if verdict.refused:
            raise KeyRefused(f"the server has no service {self._opening.service!r}")
        return self._challenge.life

    def keys(self) -> DirectionKeys:
        """For what follows, once the verdict is a yes."""
        server, client = (_direction_key(self._key, one, self._opening, self._challenge) for one in _DIRECTIONS)
        return DirectionKeys(client, server)


def _direction_key(key: bytes, sender: str, opening: Opening, challenge: Challenge) -> bytes:
    return prove(key, f"seal of the {sender}", opening, challenge)
