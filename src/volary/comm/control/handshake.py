"""Both sides prove that they have the run's key, and neither sends it; then they agree on other keys. No I/O here.

    client → server   Opening: what it wants (service, restart attempt), whether to encrypt, a nonce, half of a secret
    server → client   Challenge: its attempt, whether to encrypt, a nonce, the other half
    client → server   ClientProof: proof as client
    server → client   ServerVerdict: proof as server, and whether it is a yes
    client → server   the hello of the service: the first message, encrypted if either side wanted that

A proof is an HMAC-SHA256 with the run's key over the role and the transcript: opening and challenge, byte for byte as
they travelled. So it fits no other connection, direction, service, server or attempt, and who changes anything on the
way is refused by both. The server proves itself only to those who have proved the key, and the client looks for itself
whether it has reached what it wanted. The secret is X25519's (RFC 7748), made for one connection and forgotten: the
keys of the two directions are made of it and of the run's key (HKDF, RFC 5869), so that what was recorded cannot be
opened by whoever learns the run's key later.

Where the name of a service has terms, "invitation/2 workers" say, all this is done with a key that is made of the run's
key and of that name: who is given it proves these terms, and can do nothing else (`key_of`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Container
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from volary.comm.control.errors import BadFrame, KeyRefused, OtherAttempt
from volary.comm.control.frames import HEADER_BYTES, decode_as, encode
from volary.errors import BadInput

VERSION = 3
NONCE_BYTES = 32
SHARE_BYTES = 32
KEY_BYTES = 32
_REFUSALS = {"": "", "attempt": "no such restart attempt here", "service": "no such service here"}
_FEWEST_DIFFERENT = 16  # of 32 random bytes about 30 differ from each other, and never fewer than this


class Opening(Struct, frozen=True, forbid_unknown_fields=True):
    """The client's first frame. attempt_id: of the server that it wants; None takes any. share: half of the secret."""

    version: int
    service: str
    attempt_id: str | None
    sealed: bool
    nonce: bytes
    share: bytes


class Challenge(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's answer to any well-formed opening. attempt_id: its own."""

    attempt_id: str
    sealed: bool
    nonce: bytes
    share: bytes


class ClientProof(Struct, frozen=True, forbid_unknown_fields=True):
    """A frame with the client's proof that it has the run's key."""

    proof: bytes


class ServerVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's decision. refused: "", or "key" (then without a proof), "attempt" or "service"."""

    refused: str
    proof: bytes


def checked_key(key: bytes) -> bytes:
    """`key` if it looks like one of ours: 32 random bytes. Raises BadInput otherwise."""
    if len(key) != KEY_BYTES or len(set(key)) < _FEWEST_DIFFERENT:
        raise BadInput(
            f"what should be the run's key has {len(key)} bytes, {len(set(key))} of them different; accepted: "
            f"{KEY_BYTES} random bytes, as Volary writes them to a run's `key` file"
        )
    return key


def key_of(key: bytes, service: str) -> bytes:
    """The key that proves a service, whose name may have terms: as in "service/terms". key: the run's."""
    _, _, terms = service.partition("/")
    return hmac.digest(key, f"volary {VERSION} service:{service}".encode(), "sha256") if terms else key


class Transcript(NamedTuple):
    """The messages of both sides, byte for byte, before anything is proved."""

    opening: bytes
    challenge: bytes

    def digest(self) -> bytes:
        """SHA-256 of both, each preceded by its length so that bytes cannot be shifted from one to the other."""
        return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in self)).digest()

    def prove(self, key: bytes, role: str) -> bytes:
        """The proof (32 bytes) that the side in `role` knows `key`, bound to this exchange of messages."""
        return hmac.digest(key, f"volary {VERSION} {role}:".encode() + self.digest(), "sha256")


class DirectionKeys(NamedTuple):
    """Keys of one connection, for whoever sends and whoever receives: each side has those of the other, swapped."""

    outgoing: bytes
    incoming: bytes


class _Secret:
    """One side's half of the secret of one connection. Raises BadFrame if the other side's half is none."""

    def __init__(self) -> None:
        # costs 20 ms, which `volary --help` need not pay
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self.share = self._private.public_key().public_bytes_raw()

    def keys(self, key: bytes, transcript: Transcript, other: bytes) -> tuple[bytes, bytes]:
        """The keys of what the server sends, and of what the client sends."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:  # a point of low order: the secret would be known to all
            raise BadFrame("the other side's half of the secret is none") from None
        info = f"volary {VERSION} keys:".encode() + transcript.digest()
        both = HKDF(SHA256(), 2 * KEY_BYTES, salt=key, info=info).derive(shared)
        return both[:KEY_BYTES], both[KEY_BYTES:]


class ServerSide:
    """One connection's handshake as the server sees it: `receive` frames until `service` is set, and its `terms`.

    sealed: encrypt, whether the client wants that or not.
    """

    def __init__(self, key: bytes, attempt_id: str, services: Container[str], sealed: bool) -> None:
        self.service: str | None = None  # set once the client has proved the key and asked for what there is
        self.terms = ""  # of the service, which the client has proved
        self.sealed = sealed  # known once the client has opened the handshake
        self._key, self._attempt_id, self._services = key, attempt_id, services
        self._opening: Opening | None = None
        self._transcript = Transcript(b"", b"")
        self._secret: _Secret | None = None

    def receive(self, body: bytes) -> tuple[bytes, str]:
        """The frame to send and the reason to close after it ("" to go on). Raises BadFrame on anything unexpected."""
        if self._opening is None:
            return self._challenge(decode_as(body, Opening), body), ""
        return self._judge(self._opening, decode_as(body, ClientProof).proof)

    def keys(self) -> DirectionKeys:
        """The keys for what follows, once the service is known. Raises BadFrame."""
        assert self._opening and self._secret, "the client has not opened the handshake"
        return DirectionKeys(*self._secret.keys(self._key, self._transcript, self._opening.share))

    def _challenge(self, opening: Opening, body: bytes) -> bytes:
        if opening.version != VERSION:
            raise BadFrame(f"an opening of version {opening.version}; accepted: {VERSION}")
        _check(opening)
        self._opening, self._secret = opening, _Secret()
        self._key = key_of(self._key, opening.service)
        self.sealed = self.sealed or opening.sealed
        nonce = secrets.token_bytes(NONCE_BYTES)
        frame = encode(Challenge(self._attempt_id, self.sealed, nonce, self._secret.share))
        self._transcript = Transcript(bytes(body), frame[HEADER_BYTES:])
        return frame

    def _judge(self, opening: Opening, proof: bytes) -> tuple[bytes, str]:
        if not hmac.compare_digest(proof, self._transcript.prove(self._key, "client")):
            return encode(ServerVerdict("key", b"")), "wrong proof of the key"
        refused = ""
        service, _, terms = opening.service.partition("/")
        if opening.attempt_id not in (None, self._attempt_id):
            refused = "attempt"
        elif service not in self._services:
            refused = "service"
        else:
            self.service, self.terms = service, terms
        return encode(ServerVerdict(refused, self._transcript.prove(self._key, f"server {refused}"))), _REFUSALS[
            refused
        ]


class ClientSide:
    """A client's handshake: send `opening`, then what `answer` gives, then `judge` the verdict.

    attempt_id: of the server that is wanted; None takes any. sealed: encrypt, whether the server wants that or not.
    """

    def __init__(self, key: bytes, service: str, attempt_id: str | None, sealed: bool) -> None:
        self.sealed = sealed  # known once the server has answered
        self._key, self._secret = checked_key(key), _Secret()
        self._wanted = Opening(
            VERSION, service, attempt_id, sealed, secrets.token_bytes(NONCE_BYTES), self._secret.share
        )
        self._opening = encode(self._wanted)
        self._challenge: Challenge | None = None
        self._transcript = Transcript(b"", b"")

    def opening(self) -> bytes:
        """The first frame that a client sends."""
        return self._opening

    def answer(self, body: bytes) -> bytes:
        """The frame that proves the key to the server that sent this challenge. Raises BadFrame if it is none."""
        challenge: Challenge = decode_as(body, Challenge)
        _check(challenge)
        self._challenge = challenge
        self.sealed = self.sealed or challenge.sealed
        self._transcript = Transcript(self._opening[HEADER_BYTES:], bytes(body))
        return encode(ClientProof(self._transcript.prove(self._key, "client")))

    def judge(self, body: bytes) -> str:
        """The server's attempt, once it has proved the key and agreed. Raises KeyRefused, OtherAttempt or BadFrame."""
        assert self._challenge, "the server has not answered the opening"
        verdict: ServerVerdict = decode_as(body, ServerVerdict)
        if verdict.refused == "key":
            raise KeyRefused("the server says that this is not the run's key")
        if not hmac.compare_digest(verdict.proof, self._transcript.prove(self._key, f"server {verdict.refused}")):
            raise KeyRefused("the server does not prove that it has the run's key")
        wanted, attempt_id = self._wanted, self._challenge.attempt_id
        if verdict.refused == "attempt" or wanted.attempt_id not in (None, attempt_id):
            raise OtherAttempt(
                f"the server is of restart attempt {attempt_id}, this process of restart attempt {wanted.attempt_id}"
            )
        if verdict.refused:
            raise KeyRefused(f"the server has no service {wanted.service!r}: another one was wanted")
        return attempt_id

    def keys(self) -> DirectionKeys:
        """The keys for what follows, once the verdict is a yes. Raises BadFrame."""
        assert self._challenge, "the server has not answered the opening"
        server, client = self._secret.keys(self._key, self._transcript, self._challenge.share)
        return DirectionKeys(client, server)


def _check(message: Opening | Challenge) -> None:
    if (len(message.nonce), len(message.share)) != (NONCE_BYTES, SHARE_BYTES):
        raise BadFrame(
            f"a nonce of {len(message.nonce)} and a share of {len(message.share)} bytes; accepted: {NONCE_BYTES} and "
            f"{SHARE_BYTES}"
        )
