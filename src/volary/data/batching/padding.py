"""Samples of differing shape as one batch: filled up at their ends to the largest of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from volary.data.skipping import Skipping

if TYPE_CHECKING:
    from volary.data.samples import Samples

IGNORED = -100  # as a target: torch's losses count it for nothing


@runtime_checkable
class WithLengths(Protocol):
    """Samples that say how long each is: those of like length come in one batch, so that little is filled up."""

    @property
    def lengths(self) -> Tensor:
        """The length of each sample: (n,), in any unit."""
        ...


def lengths_of(samples: Samples) -> Tensor | None:
    """How long each is, (n,), if they say."""
    inner = samples.samples if isinstance(samples, Skipping) else samples
    return inner.lengths if isinstance(inner, WithLengths) else None


def padded(values: Sequence[Tensor], fill: int) -> Tensor:
    """(n, ...) of tensors of one type and as many dimensions, each filled up at the end of every dimension."""
    shapes = torch.tensor([tuple(value.shape) for value in values]).reshape(len(values), -1)
    largest = tuple(shapes.max(0).values.tolist())
    found = values[0].new_full((len(values), *largest), fill)
    for row, value in zip(found, values, strict=True):
        row[tuple(slice(size) for size in value.shape)] = value
    return found
