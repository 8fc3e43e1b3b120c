"""Numbers as inputs and targets: of this machine's byte order, in float32, and none that is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
_EXACT = 2**24  # float32 has every whole number up to this
_WHOLE = 2**53  # and float64 up to this: beyond it nobody counts
_BLOCK_BYTES = 2**20  # looked at together: as much as a core's cache has

Array = NDArray[Any]
PlaceOf = Callable[[int], str]  # what to call the value at this place of the flattened array: "x.csv:3: width"


def refuse_not_finite(values: Array, place_of: PlaceOf) -> None:
    """Raise DataError for the first value (n, ...) that is NaN, infinite, or larger than float32 can be."""
    rows = _rows(values)
    for start in range(0, len(values), rows):
        block = values[start : start + rows]
        # least and largest: in memory's speed, and either is NaN if one value is
        if block.size and not (float(block.min()) >= -LARGEST and float(block.max()) <= LARGEST):
            at = int(np.argmin(np.abs(block.astype(np.float64)) <= LARGEST))
            value = block.reshape(-1)[at]
            says = "missing, or NaN" if np.isnan(value) else value
            place = place_of(start * (block.size // len(block)) + at)
            raise DataError(f"{place} is {says}; accepted: a number, finite and up to 3.4e38")


def as_float32(values: Array, place_of: PlaceOf) -> NDArray[np.float32]:
    """Values (n, ...) in float32, of whatever byte order and precision they are; NaN and infinity stay what they are.

    Raises DataError for a number that is too large, and for a whole one that would become another.
    """
    with np.errstate(over="ignore"):
        found = np.asarray(values, dtype=np.float32)
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
        return found
    whole = values.dtype.kind != "f"
    rows = _rows(values)
    for start in range(0, len(values), rows):
        block, made = values[start : start + rows], found[start : start + rows]
        large = np.abs(made) >= _EXACT
        if not large.any():
            continue
        if whole:
            with np.errstate(invalid="ignore"):  # of those beyond int64
                other = large & ((np.abs(made) >= 2.0**63) | (made.astype(block.dtype) != block))
        else:
            counts = (np.abs(block) < _WHOLE) & (block == np.trunc(block))
            other = large & np.isfinite(block) & (counts | np.isinf(made)) & (made.astype(block.dtype) != block)
        if other.any():
            at = int(np.argmax(other))
            place = place_of(start * (block.size // len(block)) + at)
            raise DataError(
                f"{place} is {block.reshape(-1)[at]!s}, which float32 makes {float(made.reshape(-1)[at])}; accepted: "
                f"whole numbers up to {_EXACT:,}, others up to 3.4e38"
            )
    return found


def native(values: Array) -> Array:
    """The same values in this machine's byte order, which is all that torch takes."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def _rows(values: Array) -> int:
    return max(1, _BLOCK_BYTES * len(values) // max(1, values.nbytes))
