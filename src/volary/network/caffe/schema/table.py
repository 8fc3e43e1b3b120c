"""Caffe's messages as a table: of each message its fields, by name and by number.

A row of text is `Name: field number type default, ...`: `*` after the type says that the field may be there several
times; the type is a scalar of protobuf, another message, or an enum; without a default it is 0, "", false, or the
first name of the enum. `floats` and `doubles` are packed arrays, which are kept as bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from volary.network.caffe.schema import layers, legacy, networks, solvers

INTEGERS = frozenset({"int32", "int64", "uint32"})
FLOATS = frozenset({"float", "double"})
ARRAYS = {"floats": 4, "doubles": 8}  # bytes of a value
_PAGES = (networks, layers, legacy, solvers)


@dataclass(frozen=True)
class FieldRow:
    """One field of a message. number: on the wire; 0: it is known in text alone. values: an enum's, by name."""

    name: str
    number: int
    type: str
    repeated: bool
    default: Any
    values: Mapping[str, int] | None = None


@dataclass(frozen=True)
class MessageTable:
    """One message of the table, with its fields by name and by number."""

    name: str
    fields: Mapping[str, FieldRow]
    numbers: Mapping[int, FieldRow]


def kind(name: str) -> MessageTable:
    """The message with this name, such as "Net", "Layer" or "Convolution"."""
    return _kinds()[name]


def is_message(type_name: str) -> bool:
    """Whether a field's type is another message."""
    return type_name in _kinds()


@functools.cache
def _kinds() -> dict[str, MessageTable]:
    enums = {
        name: {word: int(number) for word, number in (row.split() for row in rows)}
        for page in _PAGES
        for name, rows in _paragraphs(page.ENUMS)
    }
    found = {}
    for page in _PAGES:
        for name, rows in _paragraphs(page.MESSAGES):
            fields = [_field(row, enums) for row in rows]
            numbers = {field.number: field for field in fields if field.number}
            found[name] = MessageTable(name, {field.name: field for field in fields}, numbers)
    return found


def _paragraphs(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.replace("\n    ", " ").strip().splitlines():
        name, _, rest = line.partition(":")
        yield name, [row.strip() for row in rest.split(",")]


def _field(row: str, enums: Mapping[str, Mapping[str, int]]) -> FieldRow:
    name, number, type_name, *default = row.split()
    repeated, type_name = type_name.endswith("*"), type_name.rstrip("*")
    values = enums.get(type_name)
    return FieldRow(name, int(number), type_name, repeated, _default(type_name, default, values), values)


def _default(type_name: str, given: list[str], values: Mapping[str, int] | None) -> Any:
    if values is not None:
        return given[0] if given else next(iter(values))
    if type_name in INTEGERS:
        return int(given[0]) if given else 0
    if type_name in FLOATS:
        return float(given[0]) if given else 0.0
    if type_name == "bool":
        return given == ["true"]
    return given[0] if given else ""
