"""Values of an LMDB database, in the order of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from volary.data.formats.extras import needed
from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, Bytes, refuse_large
from volary.errors import DataError

T = TypeVar("T")
_OPEN: WeakValueDictionary[str, _Environment] = WeakValueDictionary()  # LMDB allows a process one of each


class _Environment:
    def __init__(self, path: Path) -> None:
        lmdb = needed("lmdb", "lmdb")
        try:
            self.opened = lmdb.open(
                str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, max_readers=1
            )
        except lmdb.Error as problem:
            raise DataError(f"{path}: cannot be opened ({problem}); accepted: an LMDB database") from problem

    def __del__(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()


class LmdbRecords:
    """Each value is one record; the file is mapped into memory and read by any thread."""

    block = 64  # neighbours by key are on neighbouring pages, if they were written in that order

    def __init__(self, path: Path) -> None:
        self._path = path
        self._environment = _OPEN.get(str(path.resolve())) or _Environment(path)
        _OPEN[str(path.resolve())] = self._environment
        with self._reading() as reading:
            # as text that any bytes survive in
            self._keys = Names(bytes(key).decode("latin-1") for key in reading.cursor().iternext(values=False))

    def __len__(self) -> int:
        return len(self._keys)

    def name(self, index: int) -> str:
        """The path and the key."""
        return f"{self._path}:{self._keys[index]}"

    def expect(self, indices: Sequence[int]) -> None:
        """Nothing: the file is mapped."""

    def read(self, index: int) -> Bytes:
        """The value of the key."""
        with self._reading() as reading:
            value = reading.get(self._keys[index].encode("latin-1"))
            refuse_large(len(value), FILE_LIMIT_BYTES, "bytes")
            return bytes(value)

    def each(self, asked: Callable[[Bytes], T]) -> list[T]:
        """What `asked` says of every value, which is not copied for it. Raises DataError where it raises ValueError."""
        said: list[T] = []
        with self._reading() as reading:
            for value in reading.cursor().iternext(keys=False):
                try:
                    said.append(asked(value))
                except ValueError as problem:
                    raise DataError(f"{self.name(len(said))}: {problem}; accepted: Caffe's Datum") from problem
        return said

    def _reading(self) -> Any:
        return self._environment.opened.begin(buffers=True)
