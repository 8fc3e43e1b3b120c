"""Reads and writes protobuf's binary format by the table of Caffe's fields."""

from __future__ import annotations

import struct
from typing import Any

from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.schema.table import ARRAYS, FLOATS, INTEGERS, FieldRow, is_message, kind
from volary.protobuf import FIXED32, FIXED64, LENGTH, field, fields, fixed32, signed, varint

MOST_VALUES = 100_000  # beside those in arrays: a network of a thousand layers has some twenty thousand
MOST_BYTES = 2**31  # of a message, as protobuf has it


def read_binary(content: bytes | memoryview, message: str) -> CaffeMessage:
    """The message of this kind in these bytes; arrays are views of them, nothing of them is copied.

    Fields that the table does not have are left out. Raises ValueError if it is cut, or is something else.
    """
    return _Reader().message(content, message)


class _Reader:
    def __init__(self) -> None:
        self._values = 0

    def message(self, content: bytes | memoryview, name: str) -> CaffeMessage:
        """The message; those in it are as deep as the table, which has no circle."""
        found, known = CaffeMessage(name), kind(name).numbers
        for number, wire, value in fields(content):
            self._count(1)
            if (one := known.get(number)) is not None:
                found.add(one.name, *self._read(one, wire, value))
        for key, values in found.values.items():
            if kind(name).fields[key].type in ARRAYS and len(values) > 1:
                found.values[key] = [b"".join(values)]
        return found

    def _read(self, one: FieldRow, wire: int, value: int | memoryview) -> list[Any]:
        """The values of one field on the wire: none if the wire type is another, several if they are packed."""
        if isinstance(value, int):
            return self._number(one, value)
        if wire == LENGTH and is_message(one.type):
            return [self.message(value, one.type)]
        if one.type in ARRAYS:
            width = ARRAYS[one.type]
            if wire == LENGTH and len(value) % width:
                raise ValueError(f"{one.name} has {len(value)} bytes, which are no values of {width}")
            return [value] if wire == LENGTH or len(value) == width else []
        if wire == LENGTH and one.type == "string":
            return [bytes(value).decode("utf-8", "replace")]
        if one.type in FLOATS and wire in (FIXED32, FIXED64):
            return [struct.unpack("<f" if wire == FIXED32 else "<d", value)[0]]
        return self._packed(one, value) if wire == LENGTH and one.repeated else []

    def _packed(self, one: FieldRow, value: memoryview) -> list[Any]:
        if one.type in FLOATS:
            self._count(len(value) // 4)
            return [number for (number,) in struct.iter_unpack("<f", value[: len(value) // 4 * 4])]
        found: list[Any] = []
        place = 0
        while place < len(value):
            number, place = varint(value, place)
            found += self._number(one, number)
            self._count(1)
        return found

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")

    @staticmethod
    def _number(one: FieldRow, value: int) -> list[Any]:
        if one.type == "bool":
            return [bool(value)]
        if one.values is not None:
            names = [name for name, number in one.values.items() if number == value]
            return names[:1]
        if one.type in INTEGERS:
            return [value if one.type == "uint32" else signed(value)]
        return []


def written(message: CaffeMessage) -> bytes:
    """The message in protobuf's binary format, fields in the order of their numbers. Raises ValueError above 2 GiB."""
    parts = []
    for one in sorted(kind(message.kind).numbers.values(), key=lambda known: known.number):
        values = message.all(one.name)
        if one.type in INTEGERS and one.name == "dim":  # the one packed list of numbers in caffe.proto
            packed = b"".join(field(0, int(value))[1:] for value in values)
            parts += [field(one.number, packed)] if values else []
        else:
            parts += [_field(one, value) for value in values]
    content = b"".join(parts)
    if len(content) >= MOST_BYTES:
        raise ValueError(f"{message.kind} has {len(content):,} bytes; accepted: up to {MOST_BYTES:,}")
    return content


def _field(one: FieldRow, value: Any) -> bytes:
    if isinstance(value, CaffeMessage):
        return field(one.number, written(value))
    if one.type == "float":
        return fixed32(one.number, struct.pack("<f", value))
    if one.values is not None:
        return field(one.number, one.values[value])
    if isinstance(value, str):
        return field(one.number, value.encode())
    return field(one.number, int(value) if one.type in INTEGERS or one.type == "bool" else value)
