"""Records with one file a sample."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, Reading, hashed, refuse_large, will_need

_BLOCK = 16  # files that were written one after the other have their inodes in one block of the disk


class Files:
    """Files by their names below `root`."""

    block, remote = _BLOCK, False
    descriptors: Sequence[int] = ()

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root, self._names = str(root), Names(names)

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        name = self._names[index]
        return name if name[0] == "/" else f"{self._root}/{name}"

    def fingerprint(self) -> str:
        """A digest of names, sizes and times of change: it looks at each file, which takes microseconds."""
        found = np.zeros((len(self), 2), dtype=np.int64)
        for index in range(len(self)):
            with suppress(OSError):  # is told when it is read
                status = os.stat(self.name(index))  # noqa: PTH116 -- names alone
                found[index] = status.st_size, status.st_mtime_ns
        return hashed("files", self._root, self._names.text, self._names.ends, found)

    def at_hand(self, indices: Sequence[int]) -> bool:
        return True

    def announce(self, indices: Sequence[int]) -> bool:
        return False

    def forked(self) -> Reading:
        return partial(map, self.read)

    def expect(self, indices: Sequence[int]) -> None:
        """Open each, which reads its inode, and have its content brought."""
        for index in indices:
            with suppress(OSError):  # is told when it is read
                file = os.open(self.name(index), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    will_need(file, 0, FILE_LIMIT_BYTES)
                finally:
                    os.close(file)

    def read(self, index: int) -> bytes:
        # not open(): it costs three times these four calls, and small files are read 100,000 times a second
        file = os.open(self.name(index), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            refuse_large(size, FILE_LIMIT_BYTES, "bytes")
            return _whole(file, size)
        finally:
            os.close(file)


def _whole(file: int, size: int) -> bytes:
    content = os.read(file, size)
    while len(content) < size and (more := os.read(file, size - len(content))):
        content += more
    return content
