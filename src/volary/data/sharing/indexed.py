"""Batches of indices, of which each worker reads its share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset, default_collate

from volary.data.order import epoch_order
from volary.data.sharing.among import Among, Batches, BatchShare, begin_epoch, kept
from volary.errors import BadInput

PORTION = 1024  # batches that are drawn at once: a sampler may go on for longer than anybody trains


class SharedIndices:
    """See `volary.data.sharing.among.SharedData`.

    A data set that is merely shuffled has the order of a session with the same seed. What any other sampler draws is
    drawn by rank 0 for all.
    """

    def __init__(self, loader: Any, among: Among) -> None:
        self.loader, self._among = loader, among
        try:
            self.steps: int | None = len(loader)
        except TypeError:
            by = type(loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler)
            raise BadInput(
                f"worker.feed cannot share out what {by.__name__} draws, as it does not say how much that is; "
                "accepted: a sampler with __len__, or an IterableDataset"
            ) from None
        # of each batch that is being read: samples of its own, in all, and whether it is the epoch's last
        self._under_way = deque[tuple[int, int, bool]]()
        self._number = 0
        self._dataset, self._collate = _read_by(loader)
        self._reader: DataLoader[Any] | None = None  # this process reads by itself, which costs less than a loader
        if loader.num_workers or loader.pin_memory:
            drawing = _Drawing(self._draw)
            self._reader = DataLoader(self._dataset, batch_sampler=drawing, collate_fn=self._collate, **kept(loader))

    def epoch(self, number: int) -> Iterator[BatchShare]:
        self._number = number
        self._under_way.clear()
        for batch in self._read_here() if self._reader is None else self._reader:
            yield BatchShare(batch, *self._under_way.popleft())

    @property
    def shuffled(self) -> bool | None:
        """Whether all samples come once, in a random order or as they are; None if something else decides."""
        return _shuffled(self.loader)

    def read(self, indices: list[int]) -> Any:
        """A batch of these samples, read by this process."""
        dataset = self._dataset
        if hasattr(dataset, "__getitems__"):
            return self._collate(dataset.__getitems__(indices))
        return self._collate([dataset[index] for index in indices])

    def _read_here(self) -> Iterator[Any]:
        # as a loader does, also one without workers: whatever is drawn afterwards is what it would be
        torch.empty((), dtype=torch.int64).random_(generator=self.loader.generator)
        return map(self.read, self._draw())

    def _draw(self) -> Iterator[list[Any]]:
        """The indices that this worker reads, batch by batch, as the reader asks for them."""
        nothing: list[Any] = []
        for (batch, whole), (after, _) in pairwise(chain(self._batches(), [(nothing, 0)])):
            mine = batch[self._among.share(len(batch), whole)]
            self._under_way.append((len(mine), len(batch), after is nothing))
            yield mine or batch[:2]

    def _batches(self) -> Iterator[tuple[list[Any], int]]:
        """The global batches of the epoch, and how large a full one is."""
        whole = 0
        for portion in self._portions():
            whole = max([whole, *map(len, portion)])
            for batch in portion:
                yield batch, whole

    def _portions(self) -> Iterator[Batches]:
        """The epoch's batches, as many at a time as are known at once."""
        loader = self.loader
        begin_epoch(self._number, loader.sampler, loader.batch_sampler, loader.dataset)
        shuffled = _shuffled(loader)
        if shuffled is not None:
            order = epoch_order(len(loader.dataset), self._among.seed, self._number, shuffled)
            size = loader.batch_size
            for drawn in torch.split(order[: len(loader) * size], PORTION * size):
                numbers = drawn.tolist()
                yield [numbers[start : start + size] for start in range(0, len(numbers), size)]
            return
        drawing = iter(loader.batch_sampler)
        while portion := self._among.alike([list(batch) for batch in islice(drawing, PORTION)]):
            yield portion
            if len(portion) < PORTION:
                return


def _shuffled(loader: Any) -> bool | None:
    """Whether all samples come once, in a random order or as they are; None if something else decides."""
    if type(loader.batch_sampler) is not BatchSampler or loader.batch_size is None:
        return None
    sampler = loader.sampler
    if type(sampler) is RandomSampler:
        plain = not sampler.replacement and sampler.generator is None and len(sampler) == len(loader.dataset)
        return True if plain else None
    return False if type(sampler) is SequentialSampler else None


class _Drawing:
    """A batch sampler that draws anew with each epoch."""

    def __init__(self, draw: Callable[[], Iterator[list[Any]]]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[list[Any]]:
        return self._draw()


@dataclass(frozen=True)
class _Rows:
    """A data set that gives a batch at once: of tensors in memory the same, and quicker."""

    __getitems__: Callable[[list[int]], Any]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])


def _read_by(loader: Any) -> tuple[Any, Callable[[Any], Any]]:
    """What is read, and what makes a batch of it."""
    dataset = loader.dataset
    if loader.num_workers or loader.collate_fn is not default_collate:
        return dataset, loader.collate_fn
    if type(dataset) is TensorDataset:
        return _Rows(lambda indices: _rows_of(dataset.tensors, indices)), _as_it_is
    if hasattr(dataset, "fetch") and hasattr(dataset, "input_shape"):  # of `volary.data.samples.Samples`
        return _Rows(lambda indices: list(dataset.fetch(torch.tensor(indices)))), _as_it_is
    return dataset, loader.collate_fn


def _rows_of(tensors: Sequence[torch.Tensor], indices: list[int]) -> list[torch.Tensor]:
    """The rows of each tensor, counted from its end where an index is negative."""
    chosen = torch.tensor(indices)
    if min(indices) < 0:
        chosen = torch.where(chosen < 0, chosen + len(tensors[0]), chosen)
    # not tensor[indices], which is many times slower with a list
    return [tensor.index_select(0, chosen.to(tensor.device)) for tensor in tensors]


def _as_it_is(batch: Any) -> Any:
    return batch
