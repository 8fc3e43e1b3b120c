"""NumPy arrays of inputs and targets that are looked at, as the source `arrays` reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.unpacking import check_npz
from volary.data.looking.pictures import Picture, link_of
from volary.data.looking.table_columns import MOST_ROWS, Column
from volary.data.remarks import listed
from volary.errors import DataError

ACCEPTED = "a folder with train.npz, or with train_inputs.npy and train_targets.npy"
SUFFIXES = (".npz", ".npy")
_TARGETS = ("targets", "target", "labels", "label", "classes", "y")
_INPUTS = ("inputs", "input", "images", "data", "x")
_BOUND_VALUES = 1 << 26  # of an array, that statistics are of


@dataclass(frozen=True)
class SeenArrays:
    """folder: that the source takes. rows: by part. inputs, targets: names of arrays. columns: each array of the
    training part; classes: rows by class, where targets are such.
    """

    folder: Path
    rows: dict[str, int]
    inputs: str
    targets: str
    columns: list[Column]
    classes: dict[str, int]
    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    pictures: list[Picture]


def arrays_at(path: Path, target: str) -> SeenArrays | None:
    """The arrays in the folder `path`, or beside and in the file `path`; None if there are none.

    target: name of the array of targets; empty: guessed. Raises DataError for arrays that no session reads.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        return None
    found = _part(folder, "train")
    if not found:
        if path.is_file():
            raise DataError(f"{path}: is not named as a training part is; accepted: {ACCEPTED}")
        return None
    inputs, targets = _named(folder, found, target)
    lengths = {name: len(array) for name, array in found.items() if name in (inputs, targets)}
    if len(set(lengths.values())) > 1 or not lengths[inputs]:
        counts = " and ".join(f"{count:,} rows of {name}" for name, count in lengths.items())
        raise DataError(f"{folder}: has {counts}; accepted: as many of one as of the other, at least one")
    rows = {"train": lengths[inputs]}
    if test := _part(folder, "test"):
        rows["test"] = len(test.get(inputs, next(iter(test.values()))))
    labels = found[targets]
    is_class = labels.ndim == 1 and labels.dtype.kind in "iu" and labels.min() >= 0
    counted = Counter(labels[:MOST_ROWS].tolist()) if is_class else Counter[int]()
    classes = {str(one): counted[one] for one in sorted(counted)}
    return SeenArrays(
        folder=folder,
        rows=rows,
        inputs=inputs,
        targets=targets,
        columns=[_column(name, array) for name, array in found.items()],
        classes=classes,
        input_shape=found[inputs].shape[1:],
        target_shape=labels.shape[1:],
        pictures=_pictures(found[inputs], labels if is_class else None),
    )


def _part(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    """The arrays of a part by name; none if there is no such file."""
    packed = folder / f"{part}.npz"
    files = [packed] if packed.exists() else sorted(folder.glob(f"{part}_*.npy"))
    try:
        if packed.exists():
            with packed.open("rb") as file:
                check_npz(file, packed)
                with np.load(file, allow_pickle=False) as opened:
                    return {name: opened[name] for name in opened.files}
        load = partial(np.load, mmap_mode="r", allow_pickle=False)
        return {file.stem.removeprefix(f"{part}_"): load(file) for file in files}
    except DataError:
        raise
    except Exception as problem:  # foreign bytes
        raise DataError(f"{files[0]}: cannot be read ({problem}); accepted: {ACCEPTED}") from None


def _named(folder: Path, found: dict[str, NDArray[Any]], target: str) -> tuple[str, str]:
    """The names of the arrays of inputs and targets."""
    if target and target not in found:
        raise DataError(f"{folder}: has no array {target!r}; it has {listed(sorted(found))}")
    for name, array in found.items():
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise DataError(f"{folder}: {name} is {array.dtype} of {array.ndim} dimensions; accepted: rows of numbers")
    if len(found) < 2:
        raise DataError(f"{folder}: has the array {next(iter(found))!r} alone; accepted: one of inputs, one of targets")
    by_shape = sorted(found, key=lambda name: (found[name].ndim, found[name][:1].size))
    targets = target or next((name for name in _TARGETS if name in found), by_shape[0])
    inputs = next((name for name in _INPUTS if name in found and name != targets), "")
    return inputs or next(name for name in reversed(by_shape) if name != targets), targets


def _column(name: str, array: NDArray[Any]) -> Column:
    """Statistics of an array's first rows."""
    row = max(1, array[:1].size)
    seen = np.asarray(array[: max(1, min(MOST_ROWS, _BOUND_VALUES // row))]).ravel()
    there = seen[np.isfinite(seen)] if seen.dtype.kind == "f" else seen
    shape = " x ".join(map(str, array.shape[1:]))
    return Column(
        name=name,
        kind=f"{array.dtype}{', ' * bool(shape)}{shape}",
        missing=seen.size - there.size,
        distinct=len(np.unique(there)),
        least=float(there.min()) if there.size else None,
        mean=float(there.mean(dtype=np.float64)) if there.size else None,
        std=float(there.std(dtype=np.float64)) if there.size else None,
        greatest=float(there.max()) if there.size else None,
    )


def _pictures(inputs: NDArray[Any], labels: NDArray[Any] | None) -> list[Picture]:
    """Pictures of the first rows, if these are images."""
    shape = inputs.shape[1:]
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))) or min(shape[-2:]) < 4:
        return []
    found = list[Picture]()
    for number in range(min(24, len(inputs))):
        values = np.nan_to_num(np.asarray(inputs[number], dtype=np.float64)).reshape(-1, *shape[-2:])
        low, high = (0.0, 255.0) if inputs.dtype == np.uint8 else (values.min(), values.max())
        pixels = ((values - low) / max(high - low, 1e-12) * 255).round().astype(np.uint8)
        link = link_of(np.ascontiguousarray(np.moveaxis(pixels, 0, -1)))
        of_class = "" if labels is None else str(labels[number])
        size = f"{shape[-1]} x {shape[-2]}"
        found.append(Picture(f"row {number}", of_class, shape[-1], shape[-2], len(values) == 1, link, size))
    return found
