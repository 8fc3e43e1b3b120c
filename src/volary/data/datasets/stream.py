"""A data set that can only be read from its start: position is a number of samples, seeking is skipping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volary.data.batching.collate import collate
from volary.data.datasets.stream_shards import IterableInShards, StreamShards, ValueExchange
from volary.data.reader import Found, SamplePlaces
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.datasets.stream_shards import ValueBoard
    from volary.sharding.samples import SampleShare


class Stream:
    """Wraps an iterable of (input, target) that starts anew with every `iter()`; `set_epoch(epoch)` is called before.

    Each worker reads all of it and keeps its share: the iterable must not divide itself among workers. One in shards
    (`IterableInShards`) is divided here. See `volary.data.reader.SessionReader`.
    """

    scale: Callable[[Tensor], Tensor] | None = None
    shuffled = 0

    def __init__(
        self, iterable: Iterable[Any], name: str, classes: int | None, class_names: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.classes, self.class_names = classes, class_names
        self._shards = StreamShards(iterable, name) if isinstance(iterable, IterableInShards) else None
        # batches of shards are smaller once some are at their end: of how many an epoch is made nobody knows
        self.length = len(iterable) if self._shards is None and isinstance(iterable, Sized) else None
        self._iterable = iterable
        self._taken: list[Any] = []
        self._places = range(0)  # of those in the epoch, if the stream is in shards
        self._epoch, self._position = -1, 0
        if self._shards is None:
            self._start(epoch=0)
        self._first = collate([self._ahead if self._shards is None else self._shards.first()], [0], name)
        self._nothing = tuple(part[:0] for part in self._first)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._nothing[0].shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        return self._nothing[0].dtype

    @property
    def in_shards(self) -> bool:
        """Whether each worker reads shards of its own."""
        return self._shards is not None

    def divide(self, share: SampleShare, bulletin: ValueBoard) -> None:
        """Read for this share alone from now on, if it is in shards. bulletin: of all workers, for this stream."""
        if self._shards is not None:
            self._shards.divide(share, ValueExchange(bulletin))
            self._epoch = -1

    def first(self) -> tuple[Tensor, Tensor]:
        """The sample that was read to begin with, as a batch of one. It still comes first."""
        return self._first

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        """A stream comes as it comes."""

    def end_of(self, epoch: int, start: int, size: int) -> tuple[int, bool]:
        """Go to sample `start` of `epoch` and take up to `size`: where these end, and whether the epoch does.

        Raises DataError if the stream ends before `start`.
        """
        if epoch != self._epoch or start < self._position:
            self._start(epoch)
        if self._shards is not None:
            return self._end_of_batch(self._shards, start, size)
        while self._position < start:
            if self._next() is None:
                raise DataError(f"{self.name}: ended after {self._position} samples; the run had read {start}")
        self._taken = []
        while len(self._taken) < size and (sample := self._next()) is not None:
            self._taken.append(sample)
        if not self._taken:
            raise DataError(f"{self.name}: ended after {self._position} samples; the run had read as many")
        return self._position, self._ahead is None

    def read(self, places: SamplePlaces) -> Found:
        """Read samples there, of those that were taken last."""
        numbers, first = self._numbers(places), self._position - len(self._taken)
        mine = self._taken if self.in_shards else [self._taken[number - first] for number in numbers]
        inputs, targets = collate(mine, numbers, self.name) if mine else self._nothing
        return Found(inputs, targets, 0)

    def numbers(self, places: SamplePlaces) -> Tensor:
        """The numbers of the samples there, (n,), in the epoch."""
        return torch.tensor(self._numbers(places))

    def _numbers(self, places: SamplePlaces) -> range:
        return self._places if self.in_shards else places.range

    def _end_of_batch(self, shards: StreamShards, start: int, size: int) -> tuple[int, bool]:
        while self._position < start:
            skipped = shards.take(size)
            self._position += skipped.total
            if self._position > start or skipped.ends:
                raise DataError(
                    f"{self.name}: a batch ends after sample {self._position}, and the run had read {start}; accepted: "
                    "the same data and data.batch_size"
                )
        found = shards.take(size)
        self._taken = found.samples
        self._places = range(start + found.places.start, start + found.places.stop, found.places.step)
        self._position += found.total
        return self._position, found.ends

    def _start(self, epoch: int) -> None:
        if self._shards is not None:
            self._shards.start(epoch)
            self._epoch, self._position = epoch, 0
            return
        if hasattr(self._iterable, "set_epoch"):
            self._iterable.set_epoch(epoch)
        self._epoch, self._position = epoch, 0
        self._iterator: Iterator[Any] = iter(self._iterable)
        self._ahead = next(self._iterator, None)  # one ahead: the last batch must know that it is the last
        if self._ahead is None:
            hint = "at least one sample" if epoch == 0 else "an iterable that starts anew with every iter()"
            raise DataError(f"{self.name}: empty: no sample in epoch {epoch}; accepted: {hint}")

    def _next(self) -> Any:
        sample = self._ahead
        if sample is not None:
            self._position += 1
            self._ahead = next(self._iterator, None)
        return sample
