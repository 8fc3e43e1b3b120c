"""Samples that cannot be read: left out of a batch, told once each, and remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from volary.errors import CorruptSample

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data._base import Samples


class Skipping:
    """`samples` without those that cannot be read: `fetch` gives fewer rows then. told: of each, once."""

    def __init__(self, samples: Samples, told: Callable[[int, str], None]) -> None:
        self._samples, self._told = samples, told
        self._corrupt = torch.zeros(len(samples), dtype=torch.bool)
        self._any = False

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the samples."""
        return self._samples.input_shape

    @property
    def input_dtype(self) -> torch.dtype:
        """Of the samples."""
        return self._samples.input_dtype

    @property
    def classes(self) -> int | None:
        """Of the samples."""
        return self._samples.classes

    def readable(self, indices: Tensor) -> Tensor:
        """Those of `indices` of which nothing else is known."""
        return indices[~self._corrupt[indices]] if self._any else indices

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of those of `indices` that can be read, in their order."""
        wanted = self.readable(indices)
        while True:
            try:
                return self._samples.fetch(wanted)
            except CorruptSample as problem:
                if problem.index is None:
                    raise
                self._corrupt[problem.index] = self._any = True
                self._told(problem.index, str(problem))
                wanted = wanted[wanted != problem.index]
