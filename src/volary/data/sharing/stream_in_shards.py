"""A stream in shards: every worker reads its own, and batches are the same for any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from volary.data.datasets.stream_shards import StreamShards
from volary.data.sharing.among import STAND_IN, Among, BatchShare, after, stand_in
from volary.errors import SettingError


class SharedStreamInShards:
    """See `volary.data.sharing.among.SharedData`. Workers tell each other how many samples their shards still have."""

    def __init__(self, loader: Any, among: Among) -> None:
        """Raises DataError for a stream without samples, and SettingError if smaller batches are to be left out."""
        if loader.drop_last:
            raise SettingError(
                "drop_last is true, and batches of a stream in shards have fewer samples once some shards are at "
                "their end; accepted: drop_last=False"
            )
        self.loader = loader
        self.steps: int | None = None
        self._shards = StreamShards(loader.dataset, type(loader.dataset).__name__)
        self._first = self._shards.first()
        self._shards.divide(among.own, among.exchange)

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        return after(self._epoch(number), skip, ready)

    def _epoch(self, number: int) -> Iterator[BatchShare]:
        self._shards.start(number)
        collate, ends = self.loader.collate_fn, False
        while not ends:
            samples, _, total, ends = self._shards.take(self.loader.batch_size)
            batch = collate(samples or stand_in([self._first]))
            yield (
                BatchShare(batch, len(samples), total, ends)
                if samples
                else BatchShare.none(batch, STAND_IN, total, ends)
            )
