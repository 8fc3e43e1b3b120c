"""A message of Caffe's, whether it was read from text or from bytes: values by field, and the lines they stand in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from volary.network.caffe.schema.table import kind


@dataclass
class CaffeMessage:
    """The values of a message's fields; what is not there has the default of caffe.proto.

    kind: its name in the table. values: by field, in the order in which they are in the file; an enum's value is its
    name, an array's is bytes. line: where it begins in a text, from 1; 0: it is from no text.
    """

    kind: str
    line: int = 0
    values: dict[str, list[Any]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # of each field's first value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def one(self, name: str) -> Any:
        """The value of a field: the last one in the file, as protobuf has it, or the default."""
        if found := self.values.get(name):
            return found[-1]
        return kind(self.kind).fields[name].default

    def all(self, name: str) -> list[Any]:
        """All values of a field that may be there several times; empty if it is not there."""
        return self.values.get(name, [])

    def part(self, name: str) -> CaffeMessage:
        """The message in a field; one without values if it is not there."""
        if found := self.values.get(name):
            first: CaffeMessage = found[-1]
            return first
        return CaffeMessage(kind(self.kind).fields[name].type, self.line)

    def add(self, name: str, *values: Any, line: int = 0) -> CaffeMessage:
        """Add values to a field; returns the message itself."""
        self.values.setdefault(name, []).extend(values)
        self.lines.setdefault(name, line or self.line)
        return self

    def without(self, *names: str) -> CaffeMessage:
        """The same message without some fields, and with lists of its own."""
        kept = {name: list(values) for name, values in self.values.items() if name not in names}
        return CaffeMessage(self.kind, self.line, kept, {name: self.lines[name] for name in kept})

    def line_of(self, name: str) -> int:
        """The line that a field stands in; the message's own if the field is not there."""
        return self.lines.get(name, self.line)
