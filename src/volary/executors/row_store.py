"""Rows that a process keeps for training: in memory up to a bound, and beyond it in a file of Spark's local folder."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

KEEP_BYTES = 256 << 20


class RowStore:
    """Inputs (n, ...) and targets (n, ...) of rows, of one type each. keep_bytes: of them that stay in memory.

    Arrays are kept as they come, without a copy. The file has no name: it ends with the processes that have it open,
    and the system keeps in memory of it what is read often.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._file: IO[bytes] | None = None
        self._bytes = self._filed_bytes = 0
        self._record = np.dtype([])
        self._ends = np.empty(0, np.int64)

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory."""
        return self._file is None

    def append(self, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Add rows; nobody changes the arrays any more."""
        self._bytes += inputs.nbytes + targets.nbytes
        if self._bytes <= self._keep_bytes:
            self._parts.append((inputs, targets))
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="volary-rows-", dir=_local_folder())  # noqa: SIM115  # till `close`
            self._record = np.dtype(
                [("inputs", inputs.dtype, inputs.shape[1:]), ("targets", targets.dtype, targets.shape[1:])]
            )
        rows = np.empty(len(inputs), self._record)
        rows["inputs"], rows["targets"] = inputs, targets
        self._file.write(rows.view(np.uint8).data)
        self._filed_bytes += rows.nbytes

    def close(self) -> None:
        """Let the rows be taken; nothing is added from now on."""
        if self._file is not None:
            with self._file as file:  # the mapping has a descriptor of its own
                file.flush()
                rows = np.frombuffer(mmap.mmap(file.fileno(), self._filed_bytes, prot=mmap.PROT_READ), self._record)
            self._parts.append((rows["inputs"], rows["targets"]))
        self._ends = np.cumsum([len(inputs) for inputs, _ in self._parts], dtype=np.int64)

    def take(self, places: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs and targets of the rows at these places (n,), which are there; n is at least 1."""
        part = np.searchsorted(self._ends, places, side="right")
        inputs, targets = (np.empty((len(places), *one.shape[1:]), one.dtype) for one in self._parts[0])
        for number in np.unique(part):
            mine, first = np.flatnonzero(part == number), self._ends[number] - len(self._parts[number][0])
            inputs[mine], targets[mine] = (one[places[mine] - first] for one in self._parts[number])
        return inputs, targets


def _local_folder() -> str | None:
    """The folder that Spark gives its tasks on this machine; None: the system's for temporary files."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and Path(first).is_dir() else None
