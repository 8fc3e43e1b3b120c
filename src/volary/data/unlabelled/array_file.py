"""Rows of one array: a .npy, which is mapped and not read, or an array of a .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.files import existing_file
from volary.data.formats.numbers import as_float32, native
from volary.data.formats.unpacking import check_npz
from volary.errors import DataError

SUFFIXES = (".npy", ".npz")
_ACCEPTED = "a .npy or a .npz with rows of numbers"


def rows_of(given: Path, name: str) -> NDArray[Any]:
    """The array, of numbers that torch has. name: of the array in a .npz. Raises DataError for anything else."""
    if existing_file(given, _ACCEPTED).suffix not in SUFFIXES:
        raise DataError(f"{given}: accepted: {_ACCEPTED}")
    try:
        array = _read(given, name)
    except DataError:
        raise
    except Exception as problem:  # foreign bytes: whatever
        raise DataError(f"{given}: cannot be read ({problem}); accepted: {_ACCEPTED}") from problem
    if array.ndim == 0 or not array.size or array.dtype.kind not in "biuf":
        raise DataError(f"{given}: has {array.dtype} of the shape {array.shape}; accepted: {_ACCEPTED}")
    array = native(array)
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        return as_float32(array, lambda at: f"{given}: row {at // array[:1].size}")
    return array


def _read(given: Path, name: str) -> NDArray[Any]:
    if given.suffix == ".npy":
        # copy on write: torch takes no memory that cannot be written; nothing writes it
        mapped: NDArray[Any] = np.load(given, mmap_mode="c", allow_pickle=False)
        return mapped
    with given.open("rb") as file:
        check_npz(file, given)
        with np.load(file, allow_pickle=False) as opened:
            if name not in opened.files:
                raise DataError(f"{given}: has no array {name!r}; it has {', '.join(opened.files)}")
            array: NDArray[Any] = opened[name]
    return array
