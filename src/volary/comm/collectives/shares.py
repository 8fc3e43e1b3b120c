"""Cuts a tensor into the ranks' shares, and into the pieces that travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def share(numel: int, rank: int, world_size: int) -> slice:
    """The values that are `rank`'s: an even cut, where shares differ by one at most and may be empty."""
    return slice(numel * rank // world_size, numel * (rank + 1) // world_size)


def pieces(values: Tensor, size_bytes: int) -> Sequence[Tensor]:
    """Views of (numel,) `values`, each of at most `size_bytes` but at least one value; none of no values."""
    if not values.numel():
        return []
    found: Sequence[Tensor] = values.split(max(1, size_bytes // values.element_size()))
    return found
