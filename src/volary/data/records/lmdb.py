"""Values of an LMDB database, in the order of their keys."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from volary.data.formats.extras import needed
from volary.data.formats.labels import MOST_CLASSES
from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, Bytes, refuse_large
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

T = TypeVar("T")
ACCEPTED = f"Caffe's Datum with the number of a class, 0 to {MOST_CLASSES - 1:,}"
_OPEN: WeakValueDictionary[str, _Environment] = WeakValueDictionary()  # LMDB allows a process one of each


class _Environment:
    def __init__(self, path: Place) -> None:
        lmdb = needed("lmdb", "lmdb")
        try:
            with _here(path) as file:
                self.opened = lmdb.open(
                    str(file), subdir=file.is_dir(), readonly=True, lock=False, readahead=False, max_readers=1
                )
        except lmdb.Error as problem:
            raise DataError(f"{path}: cannot be opened ({problem}); accepted: an LMDB database") from problem

    def __del__(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()


@contextmanager
def _here(path: Place) -> Iterator[Path]:
    """The database on this machine: of one in a store a copy, which has no name any more once it is mapped."""
    if isinstance(path, Path):
        yield path
        return
    source = path / "data.mdb" if path.is_dir() else path
    with tempfile.NamedTemporaryFile(prefix="volary-") as file:
        with source.open("rb", buffering=2**23) as opened:
            shutil.copyfileobj(opened, file, 2**23)
        file.flush()
        yield Path(file.name)


class LmdbRecords:
    """Each value is one record; the file is mapped into memory and read by any thread."""

    remote = False
    block = 64  # neighbours by key are on neighbouring pages, if they were written in that order

    def __init__(self, path: Place) -> None:
        self._path = path
        known = str(path.resolve() if isinstance(path, Path) else path)
        self._environment = _OPEN.get(known) or _Environment(path)
        _OPEN[known] = self._environment
        with self._reading() as reading:
            # as text that any bytes survive in
            self._keys = Names(bytes(key).decode("latin-1") for key in reading.cursor().iternext(values=False))

    def __len__(self) -> int:
        return len(self._keys)

    def name(self, index: int) -> str:
        return f"{self._path}:{self._keys[index]}"

    def fingerprint(self) -> None:
        """None, as records are mapped into memory."""

    def expect(self, indices: Sequence[int]) -> None:
        """Do nothing: the file is mapped."""

    def read(self, index: int) -> Bytes:
        with self._reading() as reading:
            value = reading.get(self._keys[index].encode("latin-1"))
            refuse_large(len(value), FILE_LIMIT_BYTES, "bytes")
            return bytes(value)

    def each(self, asked: Callable[[Bytes], T]) -> list[T]:
        """Call `asked` with every value, uncopied; return the answers. Raises DataError if it raises ValueError."""
        answers: list[T] = []
        with self._reading() as reading:
            for value in reading.cursor().iternext(keys=False):
                try:
                    answers.append(asked(value))
                except ValueError as problem:
                    name = self.name(len(answers))
                    raise DataError(f"{name}: {problem}; accepted: {ACCEPTED}") from problem
        return answers

    def _reading(self) -> Any:
        return self._environment.opened.begin(buffers=True)
