"""Encryption and proof of origin for one direction of one connection, with a key from its handshake. No I/O here.

AES-256-GCM (NIST SP 800-38D). The nonce counts what has been sealed, and the key is of this connection and direction
alone: so a nonce is never used twice, and what is replayed, left out, swapped or changed on the way does not open.
"""

from __future__ import annotations

import ipaddress
import threading
from typing import Literal, TypeAlias

from volary.comm.control.errors import BadFrame
from volary.comm.control.frames import HEADER_BYTES

TAG_BYTES = 16
_NONCE_BYTES = 12
_CHANGED = "what arrived is not what was sent: changed on the way, replayed, or out of order"

Security = Literal["encrypted", "always", "authenticated"]
Bytes: TypeAlias = bytes | bytearray | memoryview


def stays_here(address: str) -> bool:
    """Whether messages to `address` stay on this machine: it is a loopback address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def encrypts(security: Security, address: str) -> bool:
    """Whether messages to `address` are to be encrypted: "always", or "encrypted" if they leave this machine."""
    return security == "always" or (security == "encrypted" and not stays_here(address))


class Seal:
    """Seals what is sent, or opens what is received, in that order; never both with one object.

    known: what both sides have in the clear, to be proved with it.
    """

    def __init__(self, key: bytes) -> None:
        # costs 15 ms, which `volary --help` need not pay
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._invalid = AESGCM(key), InvalidTag
        self._count, self._counting = 0, threading.Lock()

    def seal(self, data: Bytes, known: Bytes = b"") -> bytes:
        """`data` encrypted and authenticated: TAG_BYTES longer. One call for each frame, in the order of sending."""
        return self._cipher.encrypt(self._nonce(), data, known)

    def open(self, data: Bytes, known: Bytes = b"") -> bytes:
        """Open what was sealed. Raises BadFrame if this is not the next thing that the other side sealed."""
        try:
            return self._cipher.decrypt(self._nonce(), data, known)
        except (self._invalid, ValueError):
            raise BadFrame(_CHANGED) from None

    def seal_into(self, data: Bytes, out: Bytes) -> None:
        """Encrypt `data` to `out`, which has TAG_BYTES more; without the interpreter's lock and without a copy."""
        self._cipher.encrypt_into(self._nonce(), data, None, out)

    def open_into(self, data: Bytes, out: Bytes) -> None:
        """Decrypt `data` to `out`, which has TAG_BYTES less. Raises BadFrame as `open`; `out` is no use then."""
        try:
            self._cipher.decrypt_into(self._nonce(), data, None, out)
        except self._invalid:
            raise BadFrame(_CHANGED) from None

    def seal_frame(self, frame: bytes) -> bytes:
        """A frame (see `volary.comm.control.frames`) whose body is sealed: TAG_BYTES longer."""
        length = (len(frame) - HEADER_BYTES + TAG_BYTES).to_bytes(HEADER_BYTES, "big")
        return length + self.seal(memoryview(frame)[HEADER_BYTES:], length)

    def open_body(self, body: bytes) -> bytes:
        """The body of a frame that was sealed. Raises BadFrame."""
        return self.open(body, len(body).to_bytes(HEADER_BYTES, "big"))

    def _nonce(self) -> bytes:
        with self._counting:  # one nonce twice would give the key away: not even by two threads at once
            self._count += 1
            return self._count.to_bytes(_NONCE_BYTES, "big")
