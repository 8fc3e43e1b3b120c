"""Boxes of a tensor: what of it a worker has, and where two of them meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from volary.errors import BadInput


@dataclass(frozen=True, slots=True)
class Box:
    """Entries `starts` to `ends` of a tensor, along each of its dimensions."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is in it."""
        return tuple(end - start for start, end in zip(self.starts, self.ends, strict=True))

    @property
    def size(self) -> int:
        """The number of values in it; it may have none."""
        return prod(self.shape)

    def common(self, other: Box) -> Box:
        """The box that is in both; a box without values if nothing is."""
        starts = tuple(map(max, self.starts, other.starts))
        return Box(starts, tuple(map(max, starts, map(min, self.ends, other.ends))))

    def within(self, outer: Box) -> tuple[slice, ...]:
        """The index of this box in a tensor of the values of `outer`, a box around it."""
        return tuple(
            slice(start - first, end - first)
            for start, end, first in zip(self.starts, self.ends, outer.starts, strict=True)
        )


def whole(shape: Sequence[int]) -> Box:
    """The box of all values of a tensor."""
    return Box((0,) * len(shape), tuple(shape))


def cut(shape: Sequence[int], grid: Sequence[int], workers: int) -> tuple[Box, ...]:
    """The box of each worker: each dimension of a tensor of `shape` in as many parts as `grid` says, as even as can be.

    Workers follow each other along the last dimension first. Parts may be empty. Raises BadInput.
    """
    if len(grid) != len(shape) or min(grid, default=1) < 1 or prod(grid) != workers:
        raise BadInput(
            f"grid is {list(grid)} for an array of shape {list(shape)}; accepted: a number of parts for each of its "
            f"{len(shape)} dimensions, whose product is the number of workers, {workers}"
        )
    parts = [
        list(pairwise(size * place // pieces for place in range(pieces + 1)))
        for size, pieces in zip(shape, grid, strict=True)
    ]
    return tuple(Box(tuple(low for low, _ in spans), tuple(high for _, high in spans)) for spans in product(*parts))
