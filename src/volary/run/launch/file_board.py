"""A board for ranks whose launcher keeps no store but gives them all one file."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileBoard:
    """Keys and texts in a file that exists, as JSON. The calls of a store of torch's that a meeting needs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, key: str, value: str) -> None:
        with self._locked(fcntl.LOCK_EX) as descriptor:
            _write(descriptor, _read(descriptor) | {key: value})

    def delete_key(self, key: str) -> bool:
        """Delete a key; whether there was one."""
        with self._locked(fcntl.LOCK_EX) as descriptor:
            known = _read(descriptor)
            _write(descriptor, {name: value for name, value in known.items() if name != key})
            return key in known

    def get(self, key: str) -> bytes:
        """The value. Raises KeyError if there is none; it does not wait."""
        with self._locked(fcntl.LOCK_SH) as descriptor:
            return _read(descriptor)[key].encode()

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there now."""
        with self._locked(fcntl.LOCK_SH) as descriptor:
            return set(keys) <= set(_read(descriptor))

    @contextmanager
    def _locked(self, how: int) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR)  # opened anew each time: the lock belongs to what was opened
        try:
            fcntl.flock(descriptor, how)
            yield descriptor
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> dict[str, str]:
    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    found: dict[str, str] = json.loads(text) if text else {}
    return found


def _write(descriptor: int, known: dict[str, str]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(known).encode(), 0)
