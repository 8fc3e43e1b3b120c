"""Shards that `volary data pack` wrote: records one after the other, and an index of them.

A folder of `00000.bin`, `00001.bin`, ... and `index.npz`. Neighbours are read together, a block at a time, and the
blocks of a window are kept, so that samples in the order of an epoch cost one read a block.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.unpacking import check_npz
from volary.data.order import WINDOW_BLOCKS
from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, Bytes, Reading, hashed, refuse_large, will_need
from volary.data.remarks import not_read
from volary.data.storage.staging import Staging
from volary.errors import DataError
from volary.storage.remote_path import ByteRange, read_all

if TYPE_CHECKING:
    from volary.data.storage.place import Place

INDEX = "index.npz"
ACCEPTED = "a folder that `volary data pack` has finished"
_KEPT_BYTES = 16 * 2**20  # of a window's blocks
_BLOCK = 64  # records, if they are small


@dataclass(frozen=True, eq=False)
class Index:
    """The index of the shards. shards (k + 1,): the first record of each, and the number of records."""

    sizes: NDArray[np.int64]
    sums: NDArray[np.uint32]  # CRC-32 of each record
    labels: NDArray[np.int64]
    names: Names
    shards: NDArray[np.int64]
    classes: int
    class_names: tuple[str, ...] = ()  # by number; none: classes are numbers

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        called = Names(self.class_names)
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
                class_names=np.frombuffer(called.text, dtype=np.uint8),
                class_ends=called.ends,
            )
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def read(cls, path: Place) -> Index:
        """Read it back. Raises DataError for a file that is missing or damaged."""
        try:
            # opened here: np.load leaves a damaged one open
            with path.open("rb", buffering=2**22) as opened:
                if isinstance(path, Path):
                    will_need(opened.fileno(), 0, 0)  # all of it: a zip file is read from its end
                check_npz(opened, path)
                with np.load(opened, allow_pickle=False) as file:
                    names = Names.packed(file["names"].tobytes(), file["ends"])
                    rows = [file[name] for name in ("sizes", "sums", "labels")]
                    called: tuple[str, ...] = ()
                    if "class_names" in file.files:  # older packs do not say them
                        called = _texts(Names.packed(file["class_names"].tobytes(), file["class_ends"]))
                    found = cls(rows[0], rows[1], rows[2], names, file["shards"], int(file["classes"]), called)
        except FileNotFoundError:
            raise DataError(f"{path.parent}: has no {path.name}; accepted: {ACCEPTED}") from None
        except Exception as problem:  # foreign bytes: whatever
            raise DataError(f"{path}: damaged ({problem}); accepted: {ACCEPTED}") from problem
        if len({*map(len, (*rows, found.names)), int(found.shards[-1])}) != 1 or not len(found.sizes):
            raise DataError(f"{path}: damaged: its columns differ in length; accepted: {ACCEPTED}")
        if wrong := np.flatnonzero((found.labels < 0) | (found.labels >= found.classes))[:1].tolist():
            row = wrong[0]
            raise DataError(
                f"{path}: {found.names[row]} has the label {found.labels[row]}; accepted: 0 to {found.classes - 1}"
            )
        return found


class Packed:
    """Records in shards, read by any thread. remarks: on other files beside them."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        self.index = index = Index.read(folder / INDEX)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(index.sizes)])
        self._shard = np.searchsorted(index.shards, np.arange(len(index.sizes)), side="right") - 1
        self._offsets = ends[:-1] - ends[index.shards[self._shard]]
        paths = [folder / f"{number:05}.bin" for number in range(len(index.shards) - 1)]
        lengths = _lengths(folder)
        self.remarks = not_read(folder, "file", sorted(lengths.keys() - {INDEX, *(path.name for path in paths)}))
        for number, path in enumerate(paths):
            expected = int(ends[index.shards[number + 1]] - ends[index.shards[number]])
            length = lengths.get(path.name, -1)
            if length != expected:
                found = "is missing" if length < 0 else f"has {length} bytes, its index says {expected}"
                raise DataError(f"{path}: {found}; accepted: {ACCEPTED}")
        self.remote = not isinstance(folder, Path)
        self._paths = paths
        self._staged = Staging(2 * _KEPT_BYTES, keep=True)
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths if isinstance(path, Path)]
        weakref.finalize(self, _close, self._files)
        fit = _KEPT_BYTES // WINDOW_BLOCKS // max(1, int(index.sizes.mean()))
        self.block = min(_BLOCK, max(1, fit))
        firsts = np.arange(0, len(index.sizes), self.block)
        lasts = np.minimum(firsts + self.block, len(index.sizes)) - 1
        self._in_one_shard = self._shard[firsts] == self._shard[lasts]  # of each block
        extents = (self._shard[firsts], self._offsets[firsts], self._offsets[lasts] + index.sizes[lasts])
        self._extents = [np.ascontiguousarray(of, np.int64).data for of in extents]  # of each block
        within = self._offsets - self._offsets[firsts].repeat(self.block)[: len(self)]
        alone = (self.block == 1 and not self.remote) | ~self._in_one_shard.repeat(self.block)[: len(self)]
        # of each record: its size, and where it is in its block, or -1 if it is read by itself; as memoryviews, because
        # a number of an array costs twice as much to get, and tiny images are decoded in 10 microseconds
        self._sizes, self._within = (
            np.ascontiguousarray(values, np.int64).data for values in (index.sizes, np.where(alone, -1, within))
        )
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._announced: set[int] = set()  # blocks, lately
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index.sizes)

    def name(self, index: int) -> str:
        """The folder and what the record was called where it came from."""
        return f"{self._folder}:{self.index.names[index]}"

    def fingerprint(self) -> str:
        """A digest of the index, which has each record's checksum."""
        index = self.index
        return hashed("packed", index.sizes, index.sums, index.labels, index.names.text, index.names.ends)

    @property
    def descriptors(self) -> Sequence[int]:
        return self._files

    def at_hand(self, indices: Sequence[int]) -> bool:
        return not self.remote

    def forked(self) -> Reading:
        """Return a reader of the mapped files, without a copy. A file that was cut meanwhile ends the process."""
        maps = [memoryview(mmap.mmap(file, 0, prot=mmap.PROT_READ)) for file in self._files]

        def read(indices: Sequence[int]) -> list[memoryview]:
            starts = self._offsets[indices]
            extents = (self._shard[indices], starts, starts + self.index.sizes[indices])
            return [maps[shard][start:end] for shard, start, end in zip(*(of.tolist() for of in extents), strict=True)]

        return read

    def announce(self, indices: Sequence[int]) -> bool:
        """Ask the kernel to read each block ahead, once, in the order in which they are stored."""
        if self.remote:
            return False
        new = {index // self.block for index in indices} - self._announced
        if len(self._announced) > 4 * WINDOW_BLOCKS:
            self._announced.clear()
        self._announced |= new
        for number in sorted(new):
            if self._in_one_shard[number]:
                shard, start, end = self._extent(number)
                will_need(self._files[shard], start, end - start)
        return True

    def expect(self, indices: Sequence[int]) -> None:
        if self.announce(indices):
            return
        numbers = dict.fromkeys(index // self.block for index in indices)
        whole = [number for number in numbers if self._in_one_shard[number]]
        self._staged.bring(whole, lambda wanted: read_all([self._span(number) for number in wanted]))

    def read(self, index: int) -> Bytes:
        """The record, by way of its block."""
        size, begin = self._sizes[index], self._within[index]
        if size > FILE_LIMIT_BYTES:
            refuse_large(size, FILE_LIMIT_BYTES, "bytes")
        if begin < 0:
            return self._piece(int(self._shard[index]), int(self._offsets[index]), size)
        number = index // self.block
        if self.remote:
            block = memoryview(self._staged.take(number, lambda: self._block(number)))
        else:
            block = self._kept.get(number) or self._kept_block(number)
        return block[begin : begin + size]

    def _kept_block(self, number: int) -> memoryview:
        block = memoryview(self._block(number))
        with self._lock:
            self._kept[number] = block
            if len(self._kept) > 2 * WINDOW_BLOCKS:  # this window's, and the next one's, which is read ahead
                self._kept.popitem(last=False)
        return block

    def _block(self, number: int) -> bytes:
        shard, start, end = self._extent(number)
        return self._piece(shard, start, end - start)

    def _extent(self, number: int) -> tuple[int, int, int]:
        """A block's shard, its first byte in that, and the one after its last."""
        return self._extents[0][number], self._extents[1][number], self._extents[2][number]

    def _span(self, number: int) -> ByteRange:
        shard, start, end = self._extent(number)
        path = self._paths[shard]
        assert not isinstance(path, Path)
        return ByteRange(path, start, end)

    def refuse_changed(self, index: int, record: Bytes) -> None:
        """Raise ValueError unless the record is what was packed."""
        if zlib.crc32(record) != self.index.sums[index]:
            raise ValueError("its checksum is another one than when it was packed")

    def _piece(self, shard: int, start: int, size: int) -> bytes:
        path = self._paths[shard]
        content = (
            os.pread(self._files[shard], size, start) if isinstance(path, Path) else path.read(start, start + size)
        )
        if len(content) != size:
            raise OSError(f"{self._folder}/{shard:05}.bin: truncated at byte {start + len(content)}")
        return content


def _texts(names: Names) -> tuple[str, ...]:
    return tuple(names[number] for number in range(len(names)))


def _lengths(folder: Place) -> dict[str, int]:
    """The lengths of the files in a folder."""
    if isinstance(folder, Path):
        return {path.name: path.stat().st_size for path in folder.iterdir()}
    return {name: file.size for name, file in folder.files().items()}


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
