"""Sizes of an Arrow file's compressed buffers, by what the file itself says, with none unpacked.

After Arrow's columnar format, "Serialization and Interprocess Communication": a file is a magic word and messages;
a message has a header, in flatbuffers, and a body, in which each compressed buffer begins with its size unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

MAGIC = b"ARROW1\0\0"  # of the file format, which is a stream's messages after it
_HEADER_KIND, _HEADER = 1, 2  # fields of a message
_DICTIONARY, _BATCH = 2, 3  # kinds of headers
_DATA = 1  # field of a dictionary's header: a batch
_BUFFERS, _COMPRESSION = 2, 3  # fields of a batch
_AS_IT_IS = -1  # in place of a size: the buffer is not compressed


def unpacked_bytes(arrow: Any, content: Any) -> int:
    """Bytes of all compressed buffers, unpacked. arrow: the module pyarrow. content: the file, as a pyarrow.Buffer.

    Raises pyarrow.ArrowInvalid and OSError for what is no Arrow file.
    """
    begin = len(MAGIC) if content[: len(MAGIC)].to_pybytes() == MAGIC else 0
    total = 0
    try:
        for message in arrow.ipc.MessageReader.open_stream(arrow.BufferReader(content[begin:])):
            for start, size in _compressed(message.metadata.to_pybytes()):
                (becomes,) = struct.unpack("<q", message.body[start : start + 8].to_pybytes())
                total += size if becomes == _AS_IT_IS else max(0, becomes)
    except (struct.error, IndexError) as problem:
        raise arrow.ArrowInvalid(f"a message's header makes no sense ({problem})") from problem
    return total


def _compressed(header: bytes) -> Iterator[tuple[int, int]]:
    """Start and size of each buffer of a message whose buffers are compressed."""
    message = _at(header, 0)
    kind, batch = _field(header, message, _HEADER_KIND), _field(header, message, _HEADER)
    if kind is None or batch is None or header[kind] not in (_DICTIONARY, _BATCH):
        return
    table = _at(header, batch)
    if header[kind] == _DICTIONARY:
        if (data := _field(header, table, _DATA)) is None:
            return
        table = _at(header, data)
    buffers = _field(header, table, _BUFFERS)
    if buffers is None or _field(header, table, _COMPRESSION) is None:
        return
    first = _at(header, buffers)
    (count,) = struct.unpack_from("<I", header, first)
    for number in range(count):
        start, size = struct.unpack_from("<qq", header, first + 4 + 16 * number)
        if size >= 8:
            yield start, size


def _at(header: bytes, place: int) -> int:
    """The place that the reference at `place` points to."""
    (offset,) = struct.unpack_from("<I", header, place)
    return place + int(offset)


def _field(header: bytes, table: int, number: int) -> int | None:
    """The place of a table's field; None if it has its default."""
    (back,) = struct.unpack_from("<i", header, table)
    (size,) = struct.unpack_from("<H", header, table - back)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", header, table - back + 4 + 2 * number)
    return table + int(offset) if offset else None
