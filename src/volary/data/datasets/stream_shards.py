"""A stream in shards, of which each worker reads its own: batches are the same on any number of workers.

Place k of an epoch is of shard k mod `num_shards`. So batch b has what the shards still have of the places from
b * size on, and a shard's part of it depends on that shard alone. How many samples that are in all, and where the epoch
ends, workers tell each other, for `AHEAD` batches at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

from volary.errors import DataError
from volary.sharding.samples import UNDIVIDED, SampleShare

AHEAD = 8  # batches of which a worker reads its samples, and tells how many they are


@runtime_checkable
class IterableInShards(Protocol):
    """An iterable in shards, as `datasets.IterableDataset` is."""

    num_shards: int

    def shard(self, num_shards: int, index: int) -> Any:
        """Part `index` of `num_shards`: an iterable of samples."""
        ...


class ValueBoard(Protocol):
    """How all who read a stream tell each other plain values; see `volary.comm.groups.group.Bulletin`."""

    def share(self, topic: str, value: Any) -> list[Any]: ...
    def forget(self, topic: str) -> None: ...


class ValueExchange:
    """All who read a stream tell each other values in turn: each takes part in as many."""

    def __init__(self, bulletin: ValueBoard) -> None:
        self._bulletin, self._exchanged = bulletin, 0

    def exchange(self, value: Any) -> list[Any]:
        """Everybody's value, by rank. Whoever has told more since has read what was told before."""
        everybody = self._bulletin.share(f"batches {self._exchanged}", value)
        if self._exchanged:
            self._bulletin.forget(f"batches {self._exchanged - 1}")
        self._exchanged += 1
        return everybody


class ShardBatch(NamedTuple):
    """A worker's samples of a batch. places: of these in the batch, of `total` samples. ends: the epoch's last one."""

    samples: list[Any]
    places: range
    total: int
    ends: bool


class StreamShards:
    """Reads batches of a stream's shards: shard s is read by share s mod the number of shares.

    With more workers than shards each reads all of them, and keeps every so many samples of a batch.
    """

    def __init__(self, dataset: IterableInShards, name: str) -> None:
        """Raises DataError if it has no number of shards."""
        if not isinstance(dataset.num_shards, int) or dataset.num_shards < 1:
            raise DataError(f"{name}: num_shards is {dataset.num_shards!r}; accepted: 1 or more")
        self._dataset, self._name = dataset, name
        self.divide(UNDIVIDED, None)

    def divide(self, share: SampleShare, exchange: ValueExchange | None) -> None:
        """Read for this share from the next `start` on. exchange: of all who have a share; None: there is one."""
        self._share, self._exchange = share, exchange
        self._own: dict[int, _Shard] = {}
        self._ahead: deque[ShardBatch] = deque()
        self._batch, self._ended = 0, False

    def first(self) -> Any:
        """A sample, the same on all workers. Raises DataError if there is none."""
        self._begin(0)
        for number in range(self._dataset.num_shards):
            for sample in self._shard(number, 0):
                return sample
        raise DataError(f"{self._name}: empty: no sample in epoch 0; accepted: at least one sample")

    def start(self, epoch: int) -> None:
        """Begin with an epoch."""
        self._begin(epoch)
        own = [number for number in range(self._dataset.num_shards) if self._reads(number)]
        self._own = {number: _Shard(self._shard(number, epoch)) for number in own}
        self._ahead.clear()
        self._batch, self._ended = 0, False

    def take(self, size: int) -> ShardBatch:
        """The next batch, of up to `size` samples, which is the same throughout. A call of all workers.

        Raises DataError if the epoch has ended.
        """
        while not self._ahead:
            if self._ended:
                raise DataError(
                    f"{self._name}: no sample is left; accepted: an iterable that starts anew with each epoch"
                )
            self._read_ahead(size)
        return self._ahead.popleft()

    def _begin(self, epoch: int) -> None:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)

    def _shard(self, number: int, epoch: int) -> Iterator[Any]:
        made = self._dataset.shard(num_shards=self._dataset.num_shards, index=number)
        if hasattr(made, "set_epoch"):
            made.set_epoch(epoch)
        return iter(made)

    @property
    def _apart(self) -> bool:
        """Whether workers read shards of their own."""
        return self._share.count <= self._dataset.num_shards

    def _reads(self, number: int) -> bool:
        return not self._apart or number % self._share.count == self._share.number

    def _read_ahead(self, size: int) -> None:
        batches = [self._read(self._batch + number, size) for number in range(AHEAD)]
        self._batch += AHEAD
        everyone = self._announce([[len(samples), over] for samples, over in batches])
        for number, (samples, _) in enumerate(batches):
            counts = {share: announced[number][0] for share, announced in everyone.items()}
            total, ends = sum(counts.values()), all(announced[number][1] for announced in everyone.values())
            mine, places = samples, range(0)
            if self._apart:
                start = sum(count for share, count in counts.items() if share < self._share.number)
                places = range(start, start + len(samples))
            else:
                places = range(self._share.number, total, self._share.count)
                mine = [samples[place] for place in places]
            if total:  # fewer samples than shards may miss those that have some left
                self._ahead.append(ShardBatch(mine, places, total, ends))
            if ends:
                self._ended = True
                return

    def _read(self, batch: int, size: int) -> tuple[list[Any], bool]:
        """The samples that own shards have of a batch, and whether they have nothing after it."""
        shards, found = self._dataset.num_shards, []
        for number, shard in self._own.items():
            before, after = (-(-(place - number) // shards) for place in (batch * size, (batch + 1) * size))
            found += shard.take(max(0, after) - max(0, before))
        return found, all(shard.over for shard in self._own.values())

    def _announce(self, mine: list[list[Any]]) -> dict[int, list[list[Any]]]:
        """The samples that each share has of the next batches, by its number; of all of them one, if each reads all."""
        if self._exchange is None or not self._apart or self._share.count == 1:
            return {self._share.number: mine}
        return dict(self._exchange.exchange([self._share.number, mine]))


class _Shard:
    """A shard, one sample ahead of what is taken: a batch must know that it is the last."""

    def __init__(self, samples: Iterator[Any]) -> None:
        self._samples = samples
        self._next = list(islice(samples, 1))

    @property
    def over(self) -> bool:
        return not self._next

    def take(self, count: int) -> list[Any]:
        """Up to so many samples."""
        found = [*self._next, *islice(self._samples, count)] if count else []
        if count:
            self._next = found[count:]
        return found[:count]
