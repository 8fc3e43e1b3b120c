"""Vectors that stay on servers slice by slice: what these are told to do with them, and what is learnt of them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

GRADIENT = "gradient"  # the sum of the update at hand, times its scale
PARAMETERS = "parameters"


class Combine(Struct, frozen=True, array_like=True):
    """The vector `to` becomes the sum of `factors` times the vectors `of`; of none: it is forgotten.

    This is a copy, a scaled vector, an axpy, or a search direction, in one pass over a slice.
    """

    to: str
    of: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()


class Asked(Struct, frozen=True, array_like=True):
    """The inner products that servers find of an update: of each vector of `rows` with each of `columns`."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]


class FoundProducts(Struct, frozen=True, array_like=True):
    """A slice's, a shard's or all of what is `Asked`, in double precision.

    products: row by row. magnitudes, largest: of each row the sum and the largest of its values' magnitudes. rate: the
    learning rate of the update; 0 of what has no slice.
    """

    products: tuple[float, ...] = ()
    magnitudes: tuple[float, ...] = ()
    largest: tuple[float, ...] = ()
    rate: float = 0.0


def joined(pieces: Iterable[FoundProducts]) -> FoundProducts:
    """The sum of pieces of the same vectors, added in the order in which they are given."""
    found = FoundProducts()
    for one in pieces:
        if not found.products:
            found = one
        elif one.products:
            found = FoundProducts(
                tuple(a + b for a, b in zip(found.products, one.products, strict=True)),
                tuple(a + b for a, b in zip(found.magnitudes, one.magnitudes, strict=True)),
                tuple(map(max, found.largest, one.largest)),
                max(found.rate, one.rate),
            )
    return found
