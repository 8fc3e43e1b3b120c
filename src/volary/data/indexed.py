"""Reads samples by index, in the order of an epoch, and announces to storage what it will read next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from volary.data.batching.padding import lengths_of
from volary.data.order import Order, order_of
from volary.data.skipping import Skipping
from volary.data.stored import Stored

if TYPE_CHECKING:
    from volary.data.samples import Samples

ShareOf = Callable[[int], slice]  # what a worker takes of a batch of so many samples


class BatchRange(NamedTuple):
    """A batch, of all workers or of one: places in the order of an epoch."""

    epoch: int
    start: int
    end: int


def whole(_: int) -> slice:
    """The `ShareOf` of a worker that takes all of a batch."""
    return slice(None)


class IndexedReader:
    """Samples in the order that the seed decides. length: of an epoch. scale: what makes inputs of what is read.

    shuffled: samples of a block of the order; 0: as they come.
    """

    def __init__(self, samples: Samples, batch_size: int, *, seed: int, shuffle: bool) -> None:
        self.length = len(samples)
        self._source, self._seed, self._shuffle = samples, seed, shuffle
        self._stored = samples if isinstance(samples, Stored) else None
        self.scale = self._stored.scale if self._stored else None
        block = self._stored.block if self._stored else 1
        # in buckets the order depends on what a batch is
        self.shuffled = 0 if not shuffle else block if lengths_of(samples) is None else batch_size
        self._batch_size = batch_size
        self._orders: dict[int, Order] = {}
        self._announced: dict[BatchRange, Tensor] = {}  # the next batches and their samples, as announced to storage
        self._refused: tuple[BatchRange, Tensor] | None = None  # the batch for which there was no room

    def read(self, epoch: int, start: int, size: int, share: ShareOf) -> tuple[Tensor, Tensor, int, bool, int]:
        """A share of up to `size` samples: inputs (n, ...), targets (n, ...), samples of all, whether the epoch ends,
        how many were lost.
        """
        end = min(start + size, self.length)
        span = BatchRange(epoch, start, end)
        wanted = self._announced.get(span)
        if wanted is None:
            wanted = self._share_of(span, share)
        inputs, targets = self._stored.take(wanted, epoch) if self._stored else self._source.fetch(wanted)
        return inputs, targets, end - start, end == self.length, wanted.shape[0] - inputs.shape[0]

    def look_ahead(self, spans: Iterable[BatchRange], share: ShareOf) -> None:
        """Announce to storage as many of these batches, which are read next in this order, as it has room for."""
        spans = iter(spans)
        newest = next(spans, None)
        if self._stored is None or newest is None or self._still_no_room(newest):
            return
        announced: dict[BatchRange, Tensor] = {}
        for span in chain([newest], spans):
            indices = self._announced.get(span)
            if indices is None:
                indices = self._share_of(span, share)
                if not self._stored.prefetch(indices, span.epoch):
                    self._refused = span, indices
                    break
            announced[span] = indices
        self._announced = announced

    def _still_no_room(self, newest: BatchRange) -> bool:
        """Whether the batch that was refused, to be read after `newest`, is refused again: so would be all others."""
        if self._stored is None or newest not in self._announced or self._refused is None:
            return False
        span, indices = self._refused
        if span <= newest or not self._stored.prefetch(indices, span.epoch):
            return span > newest
        self._announced[span], self._refused = indices, None
        return False

    def numbers(self, epoch: int, places: range) -> Tensor:
        """The numbers in the data, (n,), of the samples at these places that can be read."""
        wanted = self._order(epoch)[places.start : places.stop][:: places.step]
        return self._source.readable(wanted) if isinstance(self._source, Skipping) else wanted

    def number(self, epoch: int, places: range, place: int) -> int:
        """The number in the data of the sample at `place` of these places of an epoch."""
        return int(self.numbers(epoch, places)[place])

    def _share_of(self, span: BatchRange, share: ShareOf) -> Tensor:
        if self._refused is not None and self._refused[0] == span:
            return self._refused[1]
        return self._order(span.epoch)[span.start : span.end][share(span.end - span.start)]

    def _order(self, epoch: int) -> Order:
        if epoch not in self._orders:
            if len(self._orders) > (self._stored is not None):  # the next epoch is announced to storage, too
                del self._orders[min(self._orders)]
            self._orders[epoch] = order_of(self._source, self._seed, epoch, self._shuffle, self._batch_size)
        return self._orders[epoch]
