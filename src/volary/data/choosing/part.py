"""Some samples of a data set, as a data set of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from volary.data.batching.padding import lengths_of
from volary.data.remarks import remarks_of
from volary.data.stored import Stored
from volary.errors import CorruptSample

if TYPE_CHECKING:
    from volary.data.samples import Samples


class DataPart:
    """Sample i is `whole[numbers[i]]`. numbers (n,) int64, ascending: neighbours in storage stay near one another."""

    lengths: Tensor  # there if the samples say them

    def __init__(self, whole: Samples, numbers: Tensor) -> None:
        self.whole, self.numbers = whole, numbers
        self._stored = whole if isinstance(whole, Stored) else None
        self.class_names: tuple[str, ...] = tuple(getattr(whole, "class_names", ()))
        self.columns: tuple[str, ...] = tuple(getattr(whole, "columns", ()))
        weights = getattr(whole, "weights", None)
        self.weights: Tensor | None = None if weights is None else torch.as_tensor(weights)[numbers]
        self.statistics: tuple[tuple[float, float], ...] = tuple(getattr(whole, "statistics", ()))
        if (lengths := lengths_of(whole)) is not None:
            self.lengths = lengths[numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.whole.input_shape

    @property
    def input_dtype(self) -> torch.dtype:
        return self.whole.input_dtype

    @property
    def classes(self) -> int | None:
        return self.whole.classes

    @property
    def remarks(self) -> tuple[str, ...]:
        """Say which samples of the whole are not read."""
        return remarks_of(self.whole)

    @property
    def block(self) -> int:
        """The block of the samples; 1 if they are not stored."""
        return self._stored.block if self._stored else 1

    @property
    def scale(self) -> Callable[[Tensor], Tensor] | None:
        """The scale of the samples; None if they are not stored."""
        return self._stored.scale if self._stored else None

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        return self._stored is not None and self._stored.prefetch(self.numbers[indices], epoch)

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        if (stored := self._stored) is None:
            return self._numbered(self.whole.fetch, indices)
        return self._numbered(lambda wanted: stored.fetch(wanted, epoch), indices)

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        if self._stored is None:
            return self.fetch(indices)
        stored = self._stored
        return self._numbered(lambda wanted: stored.take(wanted, epoch), indices)

    def _numbered(self, read: Callable[[Tensor], tuple[Tensor, Tensor]], indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `read` gives of the whole; a sample that cannot be read is named by its number here."""
        try:
            return read(self.numbers[indices])
        except CorruptSample as problem:
            if problem.index is not None:
                problem.index = int(torch.searchsorted(self.numbers, problem.index))
            raise
