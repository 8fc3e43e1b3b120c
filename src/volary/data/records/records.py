"""The protocol of record storage: records of bytes, read by index from any thread."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

Bytes = bytes | bytearray | memoryview
Reading = Callable[[Sequence[int]], Iterable[Bytes]]  # records of these indices, one after the other
FILE_LIMIT_BYTES = 256 * 2**20  # of one sample


class Records(Protocol):
    """Records of bytes, one a sample. They are numbered as they are stored: neighbours are read quickest together."""

    @property
    def block(self) -> int:
        """How many neighbours should be read together; at least 1."""
        ...

    @property
    def remote(self) -> bool:
        """Whether they come from a store, so that what is told by `expect` must be asked for always."""
        ...

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The name of a record in a message: its path."""
        ...

    def fingerprint(self) -> str | None:
        """64 hexadecimal digits that change with what the records hold; None: they are in memory, and need no cache."""
        ...

    def expect(self, indices: Sequence[int]) -> None:
        """Have the kernel read these ahead, in ascending order. May wait for the disk, never raises."""
        ...

    def read(self, index: int) -> Bytes:
        """The record's bytes. Raises OSError, or ValueError for more than FILE_LIMIT_BYTES."""
        ...


@runtime_checkable
class Forkable(Records, Protocol):
    """Records that a forked process can read, too."""

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors of the open files that it needs."""
        ...

    def at_hand(self, indices: Sequence[int]) -> bool:
        """Whether a forked process can read all of these. If so, they count as read."""
        ...

    def announce(self, indices: Sequence[int]) -> bool:
        """Ask the kernel to read these ahead, without waiting for it. False: it cannot, and readers have to."""
        ...

    def forked(self) -> Reading:
        """Return a reader for a forked process. It may raise anything, or end the process: then a thread reads."""
        ...


def hashed(*parts: object) -> str:
    """SHA-256 of texts, bytes and arrays, in their order."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else memoryview(part).cast("B")  # type: ignore[arg-type]
        found.update(b"%d:" % len(content))
        found.update(content)
    return found.hexdigest()


def refuse_large(count: int, most: int, what: str) -> None:
    """Raise ValueError if something has more than is read at all."""
    if count > most:
        raise ValueError(f"it has {count} {what}, and at most {most} are read")


def will_need(file: int, start: int, length: int) -> None:
    """Ask the kernel to read this part of an open file ahead, where it can. length: 0 is up to the end."""
    if hasattr(os, "posix_fadvise"):  # not on macOS
        os.posix_fadvise(file, start, length, os.POSIX_FADV_WILLNEED)
