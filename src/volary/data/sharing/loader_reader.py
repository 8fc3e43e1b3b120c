"""Reads samples as a user's loader makes them: with its data set, its collate_fn and its processes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from volary.data.batching.no_samples import without_rows
from volary.data.reader import SamplePlaces
from volary.data.sharing.among import STAND_IN
from volary.data.sharing.loader_reading import reading


class LoaderReader:
    """See `volary.data.reader.OrderReader`. ahead: batches that the loader's processes make before they are read.

    numbers: what the data set is asked for at places, or where there are none, samples that the batch is made of.
    seed: of what a process draws at random for a batch, whichever makes it; None: processes draw as the loader's would,
    and what is expected ends with the epoch.
    """

    def __init__(
        self,
        loader: Any,
        numbers: Callable[[SamplePlaces], list[Any]],
        seed: Callable[[SamplePlaces], int] | None = None,
    ) -> None:
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self._numbers, self._seed = numbers, seed
        # with seeds of batches a generator of its own: the program's is not drawn from
        generator = loader.generator if seed is None else torch.Generator()
        self._loading = reading(loader, _Drawing(self._draw), generator)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Let go of what was made ahead; a loader draws the seed of its processes anew with what is expected next."""
        self._batches: Iterator[Any] | None = None
        self._coming: Iterator[SamplePlaces] = iter(())
        self._due = deque[SamplePlaces]()  # asked for before what is expected
        self._asked = deque[SamplePlaces | None]()  # in order, and not taken yet; None: nothing
        self._made: dict[SamplePlaces, Any] = {}  # batches, or what making them raised
        self._newest: SamplePlaces | None = None

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        self._coming = iter(coming)
        self._begin()
        while self._asked and self._asked[0] is None and (due := self._next()) is not None:
            self._due.append(due)
            self._take()

    def read(self, places: SamplePlaces) -> tuple[Any, bool]:
        """Read what was expected, or anything else: the batch, and whether it has another's samples for want of any.

        A batch without samples is one without rows, if its kind can be cut so.
        """
        if places not in self._made and places not in self._asked:
            self._due.appendleft(places)
        self._begin()
        while places not in self._made:
            self._take()
        batch, self._newest = self._made.pop(places), places
        while len(self._made) > self.ahead:  # nobody has come for them
            del self._made[next(iter(self._made))]
        if isinstance(batch, Exception):
            raise batch
        if places.start < places.end:
            return batch, False
        batch, cut = without_rows(batch, STAND_IN)
        return batch, not cut

    def close(self) -> None:
        """Let the loader's processes end."""
        self.begin_epoch()
        self._loading = ()

    def _begin(self) -> None:
        if self._batches is None:
            self._batches = iter(self._loading)

    def _take(self) -> None:
        """Take the batch that was asked for first, and let another be asked for."""
        assert self._batches is not None
        batch: Any
        try:
            batch = next(self._batches)
        except Exception as problem:  # is raised where that batch is read, if it is
            # of a process its text has the traceback; this one's would keep the processes beyond `close`
            batch = problem.with_traceback(None) if self.ahead else problem
        if (places := self._asked.popleft()) is not None:
            self._made[places] = batch

    def _draw(self) -> Iterator[Any]:
        """Yield, as a loader's batch sampler, the numbers of what is due; with seeds none while nothing is."""
        while True:
            places = self._due.popleft() if self._due else self._next()
            if places is None and self._seed is None:
                return
            self._asked.append(places)
            numbers = [] if places is None else self._numbers(places)
            if self._seed is not None and self.ahead and places is not None:
                yield _Seeding(numbers, self._seed(places))
            else:
                yield numbers

    def _next(self) -> SamplePlaces | None:
        """The places that are expected next and not asked for."""
        known = self._asked, self._made, (self._newest,)
        return next((one for one in self._coming if not any(one in places for places in known)), None)


@dataclass(frozen=True)
class _Drawing:
    """A batch sampler that draws anew with each epoch."""

    draw: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.draw()


@dataclass(frozen=True)
class _Seeding:
    """Indices that are a list, and have seeded all random generators, in the process that receives them."""

    indices: list[int]
    seed: int

    def __reduce__(self) -> Any:
        return _seeded, (self.indices, self.seed)


def _seeded(indices: list[int], seed: int) -> list[int]:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return indices
