"""Shards that `volary data pack` wrote: records one after the other, and an index of them.

A folder of `00000.bin`, `00001.bin`, ... and `index.npz`. Neighbours are read together, a block at a time, and the
blocks of a window are kept, so that samples in the order of an epoch cost one read a block.
"""

from __future__ import annotations

import os
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from volary.data.order import WINDOW_BLOCKS
from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, Bytes, refuse_large, will_need
from volary.errors import DataError

INDEX = "index.npz"
ACCEPTED = "a folder that `volary data pack` has finished"
_KEPT_BYTES = 16 * 2**20  # of a window's blocks
_BLOCK = 64  # records, if they are small


@dataclass(frozen=True, eq=False)
class Index:
    """What is in the shards. shards (k + 1,): the first record of each, and the number of records."""

    sizes: NDArray[np.int64]
    sums: NDArray[np.uint32]  # CRC-32 of each record
    labels: NDArray[np.int64]
    names: Names
    shards: NDArray[np.int64]
    classes: int

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        with (new := path.with_suffix(".part")).open("wb") as file:
            np.savez(
                file,
                sizes=self.sizes,
                sums=self.sums,
                labels=self.labels,
                names=np.frombuffer(self.names.text, dtype=np.uint8),
                ends=self.names.ends,
                shards=self.shards,
                classes=np.int64(self.classes),
            )
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Index:
        """Read it back. Raises DataError for a file that is missing or damaged."""
        try:
            # opened here: np.load leaves a damaged one open
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                names = Names.packed(file["names"].tobytes(), file["ends"])
                rows = [file[name] for name in ("sizes", "sums", "labels")]
                found = cls(rows[0], rows[1], rows[2], names, file["shards"], int(file["classes"]))
        except FileNotFoundError:
            raise DataError(f"{path.parent}: has no {path.name}; accepted: {ACCEPTED}") from None
        except Exception as problem:  # foreign bytes: whatever
            raise DataError(f"{path}: damaged ({problem}); accepted: {ACCEPTED}") from problem
        if len({*map(len, (*rows, found.names)), int(found.shards[-1])}) != 1 or not len(found.sizes):
            raise DataError(f"{path}: damaged: its columns differ in length; accepted: {ACCEPTED}")
        return found


class Packed:
    """Records in shards, read by any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.index = index = Index.read(folder / INDEX)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(index.sizes)])
        self._shard = np.searchsorted(index.shards, np.arange(len(index.sizes)), side="right") - 1
        self._offsets = ends[:-1] - ends[index.shards[self._shard]]
        paths = [folder / f"{number:05}.bin" for number in range(len(index.shards) - 1)]
        for number, path in enumerate(paths):
            expected = int(ends[index.shards[number + 1]] - ends[index.shards[number]])
            length = path.stat().st_size if path.exists() else -1
            if length != expected:
                found = "is missing" if length < 0 else f"has {length} bytes, its index says {expected}"
                raise DataError(f"{path}: {found}; accepted: {ACCEPTED}")
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        weakref.finalize(self, _close, self._files)
        fit = _KEPT_BYTES // WINDOW_BLOCKS // max(1, int(index.sizes.mean()))
        self.block = min(_BLOCK, max(1, fit))
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._expected: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index.sizes)

    def name(self, index: int) -> str:
        """The folder and what the record was called where it came from."""
        return f"{self._folder}:{self.index.names[index]}"

    def expect(self, indices: Sequence[int]) -> None:
        """Have the blocks brought, each once."""
        for number in dict.fromkeys(index // self.block for index in indices):
            with self._lock:
                if number in self._expected:
                    continue
                self._expected[number] = None
                if len(self._expected) > 4 * WINDOW_BLOCKS:
                    self._expected.popitem(last=False)
            first, last = number * self.block, min(number * self.block + self.block, len(self)) - 1
            start, end = int(self._offsets[first]), int(self._offsets[last] + self.index.sizes[last])
            if self._shard[first] == self._shard[last]:
                will_need(self._files[self._shard[first]], start, end - start)

    def read(self, index: int) -> Bytes:
        """The record, by way of its block."""
        size = int(self.index.sizes[index])
        refuse_large(size, FILE_LIMIT_BYTES, "bytes")
        number = index // self.block
        first, last = number * self.block, min(number * self.block + self.block, len(self)) - 1
        shard, start = self._shard[index], int(self._offsets[index])
        if self.block == 1 or self._shard[first] != shard or self._shard[last] != shard:
            return self._piece(int(shard), start, size)
        with self._lock:
            block = self._kept.get(number)
        begin = int(self._offsets[first])
        if block is None:
            end = int(self._offsets[last] + self.index.sizes[last])
            block = self._piece(int(shard), begin, end - begin)
            with self._lock:
                self._kept[number] = block
                if len(self._kept) > 2 * WINDOW_BLOCKS:  # this window's, and the next one's, which is read ahead
                    self._kept.popitem(last=False)
        return memoryview(block)[start - begin : start - begin + size]

    def refuse_changed(self, index: int, record: Bytes) -> None:
        """Raise ValueError unless the record is what was packed."""
        if zlib.crc32(record) != self.index.sums[index]:
            raise ValueError("its checksum is another one than when it was packed")

    def _piece(self, shard: int, start: int, size: int) -> bytes:
        content = os.pread(self._files[shard], size, start)
        if len(content) != size:
            raise OSError(f"{self._folder}/{shard:05}.bin: cut at byte {start + len(content)}")
        return content


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
