"""Goes through inputs once, in order, batch by batch, whatever of them cannot be read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.data.skipping import Skipping
from volary.data.stored import Stored
from volary.errors import DataError
from volary.train.predicting.batch_sizes import BatchSizes

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.unlabelled.unlabelled import Unlabelled
    from volary.train.predicting.predictor import Predictor

_AHEAD = 8  # batches that are told to who reads them


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """Rows of the inputs, one after the other. values (n, ...) float32: all NaN where an input could not be read."""

    first: int
    values: Tensor


def share_of(rows: int, rank: int, workers: int) -> range:
    """The rows of a worker: shares follow each other, and differ by one row at most."""
    return range(rows * rank // workers, rows * (rank + 1) // workers)


def refuse_unreadable(lost: Mapping[int, str], rows: int) -> None:
    """Raise DataError if none of so many rows could be read."""
    if rows and len(lost) == rows:
        raise DataError(f"none of {rows:,} inputs can be read; the first: {next(iter(lost.values()))}")


class Rows:
    """Predicts some rows of the inputs. lost: sentences on those that could not be read, by row."""

    def __init__(self, predictor: Predictor, given: Unlabelled, rows: range, batch_size: int) -> None:
        self._predictor, self._given, self._rows = predictor, given, rows
        self.lost: dict[int, str] = {}
        self._samples = Skipping(given.samples, self.lost.__setitem__)
        clock = time.thread_time if predictor.device.type == "cpu" else time.perf_counter
        self.sizes = BatchSizes(batch_size, len(rows), clock)
        self._shape: tuple[int, ...] | None = None  # of a row's values
        self._waiting = 0  # rows before the first one that could be read

    def __iter__(self) -> Iterator[PredictedRows]:
        """All rows, in order; none at all if none of them can be read. Raises SettingError if they do not fit."""
        at, announced = self._rows.start, deque[int]()
        while at < self._rows.stop:
            end = min(at + self.sizes.size, self._rows.stop)
            self._announce(at, announced)
            found = self._batch(range(at, end))
            if found is not None:
                yield from found
                at = end

    def _announce(self, at: int, announced: deque[int]) -> None:
        """Let batches be read ahead, once their size does not change any more."""
        if not self.sizes.settled or not isinstance(self._given.samples, Stored):
            return
        while announced and announced[0] <= at:
            announced.popleft()
        start = announced[-1] + self.sizes.size if announced else at
        while len(announced) < _AHEAD and start < self._rows.stop:
            if not self._samples.prefetch(torch.arange(start, min(start + self.sizes.size, self._rows.stop)), 0):
                return
            announced.append(start)
            start += self.sizes.size

    def _batch(self, rows: range) -> list[PredictedRows] | None:
        """The values of these rows, and of those before that waited for a shape; None: it did not fit into memory."""
        inputs, positions = self._samples.fetch(torch.arange(rows.start, rows.stop))
        read = [row for row in rows if row not in self.lost]
        if not read:
            if self._shape is None:
                self._waiting += len(rows)
                return []
            return [PredictedRows(rows.start, torch.full((len(rows), *self._shape), torch.nan))]
        try:
            with self.sizes.timed(len(read)):
                values = self._predictor.predict(inputs, positions, last=self._given.last)
        except torch.OutOfMemoryError:
            if not self.sizes.smaller():
                raise
            return None
        if len(values) != len(read):
            raise DataError(f"the network gives {len(values)} rows for {len(read)} inputs; accepted: one for each")
        waited, self._waiting, self._shape = self._waiting, 0, tuple(values.shape[1:])
        before = [PredictedRows(rows.start - waited, torch.full((waited, *self._shape), torch.nan))] if waited else []
        if len(read) == len(rows):
            return [*before, PredictedRows(rows.start, values)]
        whole = torch.full((len(rows), *self._shape), torch.nan)
        whole[torch.tensor([row - rows.start for row in read])] = values
        return [*before, PredictedRows(rows.start, whole)]
