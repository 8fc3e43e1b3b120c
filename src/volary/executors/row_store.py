"""Rows that a task keeps for training: in memory up to a bound, and beyond it in a file of Spark's local folder."""

from __future__ import annotations

import mmap
import os
import tempfile
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

KEEP_BYTES = 256 << 20


class RowStore:
    """Rows of one structured type, one after another. keep_bytes: of them that stay in memory.

    The file has no name: it ends with this process, and the system keeps in memory of it what is read often.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._written: IO[bytes] = BytesIO()
        self._bytes = 0

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory."""
        return isinstance(self._written, BytesIO)

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (n,), contiguous."""
        self._bytes += rows.nbytes
        if isinstance(self._written, BytesIO) and self._bytes > self._keep_bytes:
            file = tempfile.TemporaryFile(prefix="volary-rows-", dir=_local_folder())  # noqa: SIM115  # open until `rows`
            file.write(self._written.getbuffer())
            self._written = file
        self._written.write(rows.view(np.uint8).data)

    def rows(self, record: np.dtype[Any]) -> NDArray[Any]:
        """All rows (n,), read-only; nothing is added from now on."""
        if not self._bytes:
            return np.empty(0, record)
        if isinstance(self._written, BytesIO):
            return np.frombuffer(self._written.getbuffer().toreadonly(), record)
        with self._written as file:  # the mapping has a descriptor of its own
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), self._bytes, prot=mmap.PROT_READ), record)


def _local_folder() -> str | None:
    """The folder that Spark gives its tasks on this machine; None: the system's for temporary files."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and Path(first).is_dir() else None
