"""A block of a named tensor: whoever cuts a network's layers, or saves and reads what was cut, names parts of it so."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

from volary.sharding.ranges import are_all_once

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """The entries along dimension `dim` of the tensor `name`, of `shape`, that are in `spans`: (start, end) of each.

    Columns of a matrix are many runs of values in memory, which no `Range` can name. A layer that has several matrices
    in one tensor (attention, LSTM) is cut in each of them: a block of it has as many spans.
    """

    name: str
    shape: tuple[int, ...]
    dim: int
    spans: tuple[tuple[int, int], ...]

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The shape of the block."""
        entries = sum(end - start for start, end in self.spans)
        return (*self.shape[: self.dim], entries, *self.shape[self.dim + 1 :])

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self.own_shape)

    def taken_from(self, whole: Tensor) -> Tensor:
        """A copy of the block's values, of `own_shape` and contiguous. whole: the tensor, of `shape`."""
        import torch

        return torch.cat([whole.narrow(self.dim, start, end - start) for start, end in self.spans], self.dim)

    def put_into(self, whole: Tensor, values: Tensor) -> None:
        """Write the block's values, of `own_shape`, where they belong in the tensor, of `shape`."""
        at = 0
        for start, end in self.spans:
            whole.narrow(self.dim, start, end - start).copy_(values.narrow(self.dim, at, end - start))
            at += end - start


def make_whole(blocks: Collection[TensorBlock]) -> bool:
    """Whether these blocks of a tensor, one at least, are all of it, and each entry once."""
    first = next(iter(blocks))
    if any((one.dim, one.shape) != (first.dim, first.shape) for one in blocks):
        return False
    return are_all_once((span for one in blocks for span in one.spans), 0, first.shape[first.dim])


def cut_evenly(
    name: str, shape: Sequence[int], dim: int, ranks: int, matrices: int = 1, unit: int = 1
) -> list[TensorBlock]:
    """The blocks of as many ranks: about as many entries along `dim` each, in whole units of so many entries.

    matrices: how many of the same size there are in the tensor, one after the other along `dim`; each is cut so.
    """
    each = shape[dim] // matrices
    bounds = [each // unit * number // ranks * unit for number in range(ranks + 1)]
    firsts = list(accumulate([each] * (matrices - 1), initial=0))
    return [
        TensorBlock(name, tuple(shape), dim, tuple((first + low, first + high) for first in firsts))
        for low, high in pairwise(bounds)
    ]
