"""A data set that can only be read from its start: position is a number of samples, seeking is skipping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor

from volary.data.batching.collate import collate
from volary.data.reader import Found, SamplePlaces
from volary.errors import DataError


class Stream:
    """Wraps an iterable of (input, target) that starts anew with every `iter()`; `set_epoch(epoch)` is called before.

    Each worker reads all of it and keeps its share: the iterable must not divide itself among workers. See
    `volary.data.reader.SessionReader`.
    """

    scale: Callable[[Tensor], Tensor] | None = None
    shuffled = 0

    def __init__(
        self, iterable: Iterable[Any], name: str, classes: int | None, class_names: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.classes, self.class_names = classes, class_names
        self.length: int | None = len(iterable) if isinstance(iterable, Sized) else None
        self._iterable = iterable
        self._taken: list[Any] = []
        self._start(epoch=0)
        self._first = collate([self._ahead], [0], name)
        self._nothing = tuple(part[:0] for part in self._first)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._nothing[0].shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        return self._nothing[0].dtype

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
        numbers, first = places.range, self._position - len(self._taken)
        mine = [self._taken[number - first] for number in numbers]
        inputs, targets = collate(mine, numbers, self.name) if mine else self._nothing
        return Found(inputs, targets, 0)

    def numbers(self, places: SamplePlaces) -> Tensor:
        """The numbers of the samples there, (n,), in the epoch."""
        return torch.tensor(places.range)

    def _start(self, epoch: int) -> None:
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
