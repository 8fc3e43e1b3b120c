"""Batches that something else has made: every worker takes its rows of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from volary.data.batching.structures import rows_of, size_of
from volary.data.sharing.among import Among, BatchShare, after, begin_epoch, with_last
from volary.errors import DataError


class SharedBatches:
    """See `volary.data.sharing.among.SharedData`. The iterable must not divide itself among workers."""

    def __init__(self, loader: Any, among: Among) -> None:
        self.loader, self._among = loader, among
        self.steps: int | None = len(loader) if hasattr(loader, "__len__") else None
        self._whole = 0

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        return after(self._epoch(number), skip, ready)

    def _epoch(self, number: int) -> Iterator[BatchShare]:
        """Raises DataError for a batch that does not show how many samples it has."""
        begin_epoch(number, *(one for one in (self.loader, getattr(self.loader, "dataset", None)) if one is not None))
        for batch, ends in with_last(self.loader, number):
            total = size_of(batch)
            if total is None:
                raise DataError(
                    f"worker.feed cannot share out a {type(batch).__name__}, as nothing in it says how many samples it "
                    "has; accepted: batches with a tensor or a list in them, or samples and batch_size"
                )
            self._whole = max(self._whole, total)
            share = self._among.share(total, self._whole)
            mine = len(range(total)[share])
            if mine:
                yield BatchShare(rows_of(batch, total, share), mine, total, ends)
            else:
                yield BatchShare.none(batch, total, total, ends)
