"""The end of a run, written to space that is reserved when it starts: a full disk does not lose it.

It is written there only when the database could not take it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

_ROOM_BYTES = 4096  # one block


def beside(database: Path) -> Path:
    """The path of this room for the database at `database`."""
    return database.with_name("ending.json")


def take_room(database: Path) -> None:
    """Begin an attempt: nothing is said of its end yet. Raises OSError."""
    _write(beside(database), b"", os.O_CREAT | os.O_TRUNC)


def keep_ending(database: Path, facts: Mapping[str, str]) -> None:
    """Write `facts` over the room; of one that does not fit the beginning. Raises OSError."""
    data = msgspec.json.encode(facts)
    if len(data) > _ROOM_BYTES:
        data = msgspec.json.encode({name: value[:200] for name, value in facts.items()})
    _write(beside(database), data, 0)  # in place: no new block is needed


def kept_ending(database: Path) -> dict[str, str]:
    """Read what was written over the room in this attempt; nothing if the database has it all."""
    try:
        return msgspec.json.decode(beside(database).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}


def _write(path: Path, data: bytes, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        os.write(descriptor, data.ljust(_ROOM_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
