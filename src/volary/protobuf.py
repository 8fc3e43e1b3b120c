"""Protobuf's wire format: the fields of a message, read where they are, and written (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}  # bytes


def fields(record: bytes | bytearray | memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (number, wire type, value) of each field of a message; nothing is copied.

    A value is a number from 0 to below 2**64 if the type is VARINT, else a view of the bytes in `record`.
    Raises ValueError if the message is cut, or is something else.
    """
    view, place, end = memoryview(record), 0, len(record)
    while place < end:
        tag, place = varint(view, place)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, place = varint(view, place)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, place = varint(view, place)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"wire type {wire} at byte {place}")
        if place + size > end:
            raise ValueError("truncated")
        yield number, wire, view[place : place + size]
        place += size


def varint(view: memoryview, place: int) -> tuple[int, int]:
    """The number at `place`, below 2**64, and the place after it. Raises ValueError if it is cut or longer."""
    value = shift = 0
    while True:
        if place >= len(view) or shift > 63:
            raise ValueError("truncated")
        byte = view[place]
        value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, place


def signed(value: int) -> int:
    """The number that a varint below 2**64 means where it may be negative: it has the two's complement."""
    return value - ((value >> 63) << 64)


def field(number: int, value: int | bytes | memoryview) -> bytes:
    """Encode one field: a whole number from -2**63 to below 2**64, or bytes, with the field's number before it."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF)
    return _varint(number << 3 | LENGTH) + _varint(len(value)) + bytes(value)


def fixed32(number: int, value: bytes) -> bytes:
    """Encode one field of 4 bytes, such as a float."""
    return _varint(number << 3 | FIXED32) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
