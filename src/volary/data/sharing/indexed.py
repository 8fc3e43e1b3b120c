"""Batches of indices: each worker reads its share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from volary.data.sharing.among import STAND_IN, Among, Batches, BatchShare, begin_epoch, stand_in
from volary.data.sharing.loader_reading import reading
from volary.errors import BadInput

PORTION = 1024  # batches that workers draw at once: a sampler may go on for longer than anybody trains


class SharedIndices:
    """See `volary.data.sharing.among.SharedData`.

    The order is what the loader's sampler draws, as without Volary, and all workers have what rank 0's draws.
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
        self._reader = reading(loader, _Drawing(self._draw), loader.generator)

    def epoch(self, number: int) -> Iterator[BatchShare]:
        self._number = number
        self._under_way.clear()
        for batch in self._reader:
            mine, total, ends = self._under_way.popleft()
            yield BatchShare(batch, mine, total, ends) if mine else BatchShare.none(batch, STAND_IN, total, ends)

    @property
    def shuffled(self) -> bool | None:
        """Whether all samples come once, in a random order or as they are; None if something else decides."""
        loader = self.loader
        if type(loader.batch_sampler) is not BatchSampler or loader.batch_size is None:
            return None
        sampler = loader.sampler
        if type(sampler) is RandomSampler:
            return True if not sampler.replacement and len(sampler) == len(loader.dataset) else None
        return False if type(sampler) is SequentialSampler else None

    def _draw(self) -> Iterator[list[Any]]:
        """The indices that this worker reads in an epoch that begins, batch by batch, as the reader asks for them."""
        loader = self.loader
        begin_epoch(self._number, loader.sampler, loader.batch_sampler, loader.dataset)
        return self._shares(map(list, loader.batch_sampler))

    def _shares(self, drawing: Iterator[list[Any]]) -> Iterator[list[Any]]:
        number = whole = 0
        for portion in self._portions(drawing):
            whole = max([whole, *map(len, portion)])  # samples of a full batch
            for batch in portion:
                number += 1
                mine = batch[self._among.share(len(batch), whole)]
                self._under_way.append((len(mine), len(batch), number == self.steps))
                yield mine or stand_in(batch)

    def _portions(self, drawing: Iterator[list[Any]]) -> Iterator[Batches]:
        """The epoch's batches, as many at a time as workers draw at once."""
        alike = self._among.alike
        if alike is None or self.shuffled is False:
            yield from ([batch] for batch in drawing)
            return
        while portion := alike(list(islice(drawing, PORTION))):
            yield portion
            if len(portion) < PORTION:
                return


class _Drawing:
    """A batch sampler that draws anew with each epoch."""

    def __init__(self, draw: Callable[[], Iterator[list[Any]]]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[list[Any]]:
        return self._draw()
