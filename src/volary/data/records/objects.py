"""Records with one file of a store a sample. Expected ones are asked for at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from volary.data.records.names import Names
from volary.data.records.records import FILE_LIMIT_BYTES, hashed, refuse_large
from volary.data.storage.staging import STAGED_BYTES, Staging
from volary.storage.remote_path import ByteRange, FileInfo, RemotePath, read_all


class Objects:
    """Files by their names below `root`. files: what a listing says of each, which saves a question."""

    block = 16  # as of files: the order of an epoch is the same as on this machine
    remote = True

    def __init__(self, root: RemotePath, names: Iterable[str], files: Sequence[FileInfo] = ()) -> None:
        self._root, self._names = root, Names(names)
        self._sizes = np.array([file.size for file in files], dtype=np.int64) if files else None
        self._versions = [file.version for file in files]
        self._staged = Staging(STAGED_BYTES, keep=False)

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        return f"{self._root}/{self._names[index]}"

    def fingerprint(self) -> str:
        """A digest of names and sizes, and of the store's versions. Without sizes only names are known."""
        sizes = np.zeros(0, np.int64) if self._sizes is None else self._sizes
        return hashed("objects", str(self._root), self._names.text, self._names.ends, sizes, "\n".join(self._versions))

    def expect(self, indices: Sequence[int]) -> None:
        small = [index for index in indices if self._size(index) <= FILE_LIMIT_BYTES]
        self._staged.bring(small, lambda wanted: read_all([self._span(index) for index in wanted]))

    def read(self, index: int) -> bytes:
        refuse_large(self._size(index), FILE_LIMIT_BYTES, "bytes")
        span = self._span(index)
        content = self._staged.take(index, lambda: span.path.read(span.start, span.end))
        refuse_large(len(content), FILE_LIMIT_BYTES, "bytes")
        return content

    def _size(self, index: int) -> int:
        return 0 if self._sizes is None else int(self._sizes[index])

    def _span(self, index: int) -> ByteRange:
        path = self._root / self._names[index]
        return ByteRange(path, 0, self._size(index)) if self._size(index) else ByteRange(path)
