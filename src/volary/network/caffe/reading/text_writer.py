"""Writes messages in protobuf's text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.schema.table import ARRAYS, FLOATS, kind

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def in_text(message: CaffeMessage) -> str:
    """The message as a prototxt file has it; arrays are left out, they belong in a caffemodel."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: CaffeMessage) -> Iterator[str]:
    fields = kind(message.kind).fields
    for name, values in message.values.items():
        if fields[name].type in ARRAYS:
            continue
        for value in values:
            if isinstance(value, CaffeMessage):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(value))
                yield "}"
            else:
                sort = fields[name].type
                yield f"{name}: {_scalar(value, quoted=sort == 'string', real=sort in FLOATS)}"


def _scalar(value: Any, *, quoted: bool, real: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if quoted:
        return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else _octal(one)) for one in value) + '"'
    return f"{value:.9g}" if real else str(value)


def _octal(one: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in one.encode())
