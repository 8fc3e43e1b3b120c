"""Messages as frames: 4 bytes of length (big-endian), then that many bytes of msgpack. No input or output here.

Nothing is ever unpickled, and a frame's length is judged before a byte of it is kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from volary.comm.control.errors import BadFrame

HEADER_BYTES = 4
FRAME_BYTES = 16 * 2**20  # accepted from a peer that has proved the key
STRANGER_FRAME_BYTES = 4 * 2**10  # accepted from one that has not


def encode(message: Any, limit_bytes: int = FRAME_BYTES) -> bytes:
    """The frame of `message` (anything msgpack knows, or a msgspec Struct). Raises BadFrame above the limit."""
    body = msgspec.msgpack.encode(message)
    if len(body) > limit_bytes:
        raise BadFrame(f"a message of {len(body)} bytes is above the limit of {limit_bytes} bytes per frame")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode(body: bytes) -> Any:
    """The message in a frame's body, as plain Python values. Raises BadFrame if it is not msgpack."""
    return decode_as(body, Any)


def decode_as(body: bytes, kind: Any) -> Any:
    """The message in a frame's body, as `kind` (a type msgspec knows). Raises BadFrame if it is none."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (ValueError, TypeError, OverflowError, RecursionError) as problem:  # all that msgspec raises on garbage
        raise BadFrame(f"a frame of {len(body)} bytes holds no readable message: {problem}") from None


class FrameReader:
    """Cuts a stream of bytes into frames' bodies; keeps no more than one frame and what one read brought with it."""

    def __init__(self, limit_bytes: int = FRAME_BYTES) -> None:
        self.limit_bytes = limit_bytes  # may be raised once the other side has proved the key
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that were fed and not yet taken."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        """Take what a read returned; call `take` until it gives None before feeding again."""
        self._pending += data

    def take(self) -> bytes | None:
        """The next whole body, or None until more arrives. Raises BadFrame once a length above the limit is seen."""
        if len(self._pending) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._pending[:HEADER_BYTES], "big")
        if length > self.limit_bytes:
            raise BadFrame(f"a frame announces {length} bytes; accepted: up to {self.limit_bytes}")
        end = HEADER_BYTES + length
        if len(self._pending) < end:
            return None
        body = bytes(memoryview(self._pending)[HEADER_BYTES:end])
        del self._pending[:end]
        return body
