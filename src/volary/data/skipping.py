"""Samples that cannot be read: left out of a batch, told once each, and remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from volary.data.stored import Stored
from volary.errors import CorruptSample

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples


class Skipping:
    """`samples` without those that cannot be read: `fetch` gives fewer rows then. report: of each, once."""

    def __init__(self, samples: Samples, report: Callable[[int, str], None]) -> None:
        self.samples, self._report = samples, report
        self._stored = samples if isinstance(samples, Stored) else None
        self._corrupt = torch.zeros(len(samples), dtype=torch.bool)
        self._any = False

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.samples.input_shape

    @property
    def input_dtype(self) -> torch.dtype:
        return self.samples.input_dtype

    @property
    def classes(self) -> int | None:
        return self.samples.classes

    @property
    def block(self) -> int:
        """The block of the samples; 1 if they are not stored."""
        return self._stored.block if self._stored else 1

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        """Prefetch those that are not known to be unreadable, if the samples are stored."""
        return self._stored is not None and self._stored.prefetch(self.readable(indices), epoch)

    def readable(self, indices: Tensor) -> Tensor:
        """The `indices` (n,) that are not known to be unreadable: (m,)."""
        return indices[~self._corrupt[indices]] if self._any else indices

    @property
    def scale(self) -> Callable[[Tensor], Tensor] | None:
        """The scale of the samples; None if they are not stored."""
        return self._stored.scale if self._stored else None

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs and targets of those of `indices` that can be read, in their order."""
        if (stored := self._stored) is None:
            return self._those_of(indices, self.samples.fetch)
        return self._those_of(indices, lambda wanted: stored.fetch(wanted, epoch))

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """The same as they were decoded, if the samples are stored."""
        if self._stored is None:
            return self.fetch(indices)
        stored = self._stored
        return self._those_of(indices, lambda wanted: stored.take(wanted, epoch))

    def _those_of(self, indices: Tensor, read: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        wanted = self.readable(indices)
        while True:
            try:
                return read(wanted)
            except CorruptSample as problem:
                if problem.index is None:
                    raise
                self._corrupt[problem.index] = self._any = True
                self._report(problem.index, str(problem))
                wanted = wanted[wanted != problem.index]
