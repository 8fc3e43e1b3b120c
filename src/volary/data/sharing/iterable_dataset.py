"""A stream of samples: every worker reads all of them, and collates its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from volary.data.sharing.among import STAND_IN, Among, BatchShare, after, begin_epoch, kept, stand_in, with_last
from volary.sharding.samples import SampleShare


class SharedIterableDataset:
    """See `volary.data.sharing.among.SharedData`. The stream must not divide itself among workers."""

    def __init__(self, loader: Any, among: Among) -> None:
        self.loader = loader
        self.steps: int | None = len(loader) if hasattr(loader.dataset, "__len__") else None
        self._reader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
            collate_fn=_CollatedShare(loader.collate_fn, among.own, loader.batch_size * among.pairs()),
            **kept(loader),
        )

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        return after(self._epoch(number), skip, ready)

    def _epoch(self, number: int) -> Iterator[BatchShare]:
        begin_epoch(number, self.loader.dataset)
        for (batch, mine, total), ends in with_last(self._reader, number):
            yield BatchShare(batch, mine, total, ends) if mine else BatchShare.none(batch, STAND_IN, total, ends)


@dataclass(frozen=True)
class _CollatedShare:
    """Collates a worker's share of a batch: (batch, its samples, those of all). It may run in a reading process."""

    collate: Callable[[Any], Any]
    own: SampleShare
    whole: int

    def __call__(self, samples: list[Any]) -> tuple[Any, int, int]:
        mine = samples[self.own.of(len(samples), self.whole)]
        return self.collate(mine or stand_in(samples)), len(mine), len(samples)


def stream_of(samples: Iterable[Any]) -> IterableDataset[Any]:
    """Any iterable of samples as a data set."""
    return _SizedStream(samples) if hasattr(samples, "__len__") else _Stream(samples)


class _Stream(IterableDataset[Any]):
    def __init__(self, samples: Iterable[Any]) -> None:
        self._samples: Any = samples

    def set_epoch(self, number: int) -> None:
        begin_epoch(number, self._samples)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._samples)


class _SizedStream(_Stream):
    def __len__(self) -> int:
        return len(self._samples)
