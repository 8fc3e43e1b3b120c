"""Batches of indices: each worker reads its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from volary.data.reader import SamplePlaces
from volary.data.sharing.among import Among, Batches, BatchShare, begin_epoch, stand_in
from volary.data.sharing.loader_reader import LoaderReader
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
        self._drawn: dict[SamplePlaces, _Drawn] = {}  # by this worker's places, in order, and not read yet
        self._drawing: Iterator[SamplePlaces] = iter(())
        self._reader = LoaderReader(loader, lambda places: self._drawn[places].numbers)

    def epoch(self, number: int, skip: int = 0, ready: Callable[[], None] = lambda: None) -> Iterator[BatchShare]:
        loader, reader = self.loader, self._reader
        begin_epoch(number, loader.sampler, loader.batch_sampler, loader.dataset)
        reader.begin_epoch()
        self._drawn.clear()
        # begins before the reader, as a loader does
        self._drawing = _announced(self._draw(number, map(list, loader.batch_sampler), skip), ready)
        while True:
            reader.expect(self._coming())
            if (places := next(self._coming(), None)) is None:
                break
            batch, foreign = reader.read(places)
            drawn = self._drawn.pop(places)
            yield BatchShare(batch, drawn.samples, drawn.total, drawn.ends_epoch, foreign)
        reader.begin_epoch()

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

    def _coming(self) -> Iterator[SamplePlaces]:
        """Yield the samples that are drawn and not read; and more, drawn as it is asked for."""
        return chain(tuple(self._drawn), self._drawing)

    def _draw(self, epoch: int, batches: Iterator[list[Any]], skip: int) -> Iterator[SamplePlaces]:
        number = whole = first = 0
        for portion in self._portions(batches):
            whole = max([whole, *map(len, portion)])  # samples of a full batch
            for batch in portion:
                number, total = number + 1, len(batch)
                share = self._among.share(total, whole)
                own, mine = range(first, first + total)[share], batch[share]
                places = SamplePlaces(epoch, own.start, own.stop, own.step)
                first += total
                if number > skip:
                    self._drawn[places] = _Drawn(mine or stand_in(batch), len(mine), total, number == self.steps)
                    yield places

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


def _announced(places: Iterator[SamplePlaces], ready: Callable[[], None]) -> Iterator[SamplePlaces]:
    """Yield the same; `ready` is called before the first."""
    first = next(places, None)
    ready()
    if first is not None:
        yield first
        yield from places


class _Drawn(NamedTuple):
    """A batch. numbers: what this worker reads for it. samples: its own; total: of all workers."""

    numbers: list[Any]
    samples: int
    total: int
    ends_epoch: bool
