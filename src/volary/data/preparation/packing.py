"""Packs small files into shards, written one by one, each whole or not at all, so that a stopped pack can continue."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from volary.data.loading.pipeline import Pipeline
from volary.data.preparation.reading import in_order
from volary.data.records.names import Names
from volary.data.records.packed import INDEX, Index
from volary.data.records.records import Bytes
from volary.errors import DataError

_MARK = "packing"  # what the shards that are there are of


def pack(samples: Pipeline, folder: Path, shard_bytes: int, progress: Callable[[int], None]) -> Index:
    """Write all records of `samples` into `folder`. progress: of each record that is done.

    Shards that an earlier call has written are kept. Raises DataError for a folder that holds something else, for
    targets that are no classes, and for a record that cannot be read.
    """
    if samples.targets.dim() != 1 or samples.targets.is_floating_point() or samples.classes is None:
        raise DataError(f"{samples.records.name(0)}: its target is no class; accepted: data with classes")
    names = _below([samples.records.name(index) for index in range(len(samples))])
    _begin(folder, _fingerprint(names, samples, shard_bytes))
    shards = [0]
    sizes, sums = np.empty(len(samples), np.int64), np.empty(len(samples), np.uint32)
    while shards[-1] < len(samples):
        path = folder / f"{len(shards) - 1:05}.bin"
        done = path.with_suffix(".npy")
        if path.exists() and done.exists():
            rows = np.load(done, allow_pickle=False)
            progress(len(rows))
        else:
            rows = _shard(samples, shards[-1], path, shard_bytes, progress)
            np.save(done, rows)
        end = shards[-1] + len(rows)
        sizes[shards[-1] : end], sums[shards[-1] : end] = rows[:, 0], rows[:, 1]
        shards.append(end)
    index = Index(sizes, sums, samples.targets.numpy(), names, np.array(shards), samples.classes, samples.class_names)
    index.save(folder / INDEX)
    for leftover in [*folder.glob("[0-9]*.npy"), folder / _MARK]:
        leftover.unlink()
    return index


def _shard(
    samples: Pipeline, first: int, path: Path, shard_bytes: int, progress: Callable[[int], None]
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Write records until the shard is large enough; size and checksum of each."""
    rows: list[tuple[int, int]] = []
    with (new := path.with_suffix(".part")).open("wb") as file:
        for record in _until_full(in_order(samples.records, range(first, len(samples))), shard_bytes):
            file.write(record)
            rows.append((len(record), zlib.crc32(record)))
            progress(1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return np.array(rows, dtype=np.int64)


def _until_full(records: Iterator[Bytes], shard_bytes: int) -> Iterator[Bytes]:
    written = 0
    for record in records:
        yield record
        written += len(record)
        if written >= shard_bytes:
            return


def _below(paths: list[str]) -> Names:
    """The paths from the folder on that they have in common."""
    first, last = min(paths), max(paths)
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    start = first.rfind("/", 0, same) + 1
    return Names(path[start:] for path in paths)


def _fingerprint(names: Names, samples: Pipeline, shard_bytes: int) -> str:
    text = hashlib.sha256(names.text)
    for part in (names.ends.tobytes(), samples.targets.numpy().tobytes(), str(shard_bytes).encode()):
        text.update(part)
    return text.hexdigest()


def _begin(folder: Path, fingerprint: str) -> None:
    """Make the folder, or see that what is there is the beginning of the same."""
    mark = folder / _MARK
    if (folder / INDEX).exists():
        raise DataError(f"{folder}: is packed already; accepted: another folder, or none")
    if mark.exists() and mark.read_text() == fingerprint:
        return
    if folder.exists() and any(folder.iterdir()):
        what = "a pack of other data, or in other shards," if mark.exists() else "something else"
        raise DataError(f"{folder}: holds {what} already; accepted: another folder, or none")
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(fingerprint)
