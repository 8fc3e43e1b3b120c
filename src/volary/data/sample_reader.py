"""Reads samples by index, in the order that the seed decides, and announces to storage what is read next."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING
from zlib import crc32

from torch import Tensor

from volary.data.batching.padding import lengths_of
from volary.data.order import Order, order_of
from volary.data.reader import Found, SamplePlaces
from volary.data.skipping import Skipping
from volary.data.stored import Stored

if TYPE_CHECKING:
    from volary.data.samples import Samples


class SampleReader:
    """See `volary.data.reader.SessionReader`. batch_size: of all workers, for samples of like length in one batch.

    weights (n,): samples are drawn by these. streams: they come in as many streams as a batch has samples.
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = False,
        weights: Tensor | None = None,
        streams: bool = False,
    ) -> None:
        self.length: int | None = len(samples)
        self._source, self._seed, self._shuffle = samples, seed, shuffle
        self._stored = samples if isinstance(samples, Stored) else None
        self.scale = self._stored.scale if self._stored else None
        block = self._stored.block if self._stored else 1
        # in buckets the order depends on what a batch is
        self.shuffled = 0 if not shuffle else block if lengths_of(samples) is None else batch_size
        if weights is not None:
            self.shuffled = -1 - crc32(weights.numpy().tobytes())
        self._batch_size, self._weights, self._streams = batch_size, weights, streams
        self._orders: dict[int, Order] = {}
        self._announced: dict[SamplePlaces, Tensor] = {}  # what is read next, as announced to storage
        self._refused: tuple[SamplePlaces, Tensor] | None = None  # that for which there was no room

    def end_of(self, epoch: int, start: int, size: int) -> tuple[int, bool]:
        end = min(start + size, len(self._source))
        return end, end == len(self._source)

    def read(self, places: SamplePlaces) -> Found:
        """Read the samples there that can be read."""
        wanted = self._announced.get(places)
        if wanted is None:
            wanted = self._indices(places)
        inputs, targets = self._stored.take(wanted, places.epoch) if self._stored else self._source.fetch(wanted)
        return Found(inputs, targets, wanted.shape[0] - inputs.shape[0])

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        """Announce to storage as much of it as there is room for."""
        coming = iter(coming)
        newest = next(coming, None)
        if self._stored is None or newest is None or self._still_no_room(newest):
            return
        announced: dict[SamplePlaces, Tensor] = {}
        for places in chain([newest], coming):
            indices = self._announced.get(places)
            if indices is None:
                indices = self._indices(places)
                if not self._stored.prefetch(indices, places.epoch):
                    self._refused = places, indices
                    break
            announced[places] = indices
        self._announced = announced

    def _still_no_room(self, newest: SamplePlaces) -> bool:
        """Whether what was refused, to be read after `newest`, is refused again: so would be all that follows."""
        if self._stored is None or newest not in self._announced or self._refused is None:
            return False
        places, indices = self._refused
        if places <= newest or not self._stored.prefetch(indices, places.epoch):
            return places > newest
        self._announced[places], self._refused = indices, None
        return False

    def numbers(self, places: SamplePlaces) -> Tensor:
        """The numbers in the data, (n,), of the samples there that can be read."""
        wanted = self._indices(places)
        return self._source.readable(wanted) if isinstance(self._source, Skipping) else wanted

    def _indices(self, places: SamplePlaces) -> Tensor:
        if self._refused is not None and self._refused[0] == places:
            return self._refused[1]
        return self._order(places.epoch)[places.start : places.end][:: places.step]

    def _order(self, epoch: int) -> Order:
        if epoch not in self._orders:
            if len(self._orders) > (self._stored is not None):  # the next epoch is announced to storage, too
                del self._orders[min(self._orders)]
            self._orders[epoch] = order_of(
                self._source,
                self._seed,
                epoch,
                self._shuffle,
                self._batch_size,
                self._weights,
                streams=self._streams,
            )
        return self._orders[epoch]
