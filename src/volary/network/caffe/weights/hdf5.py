"""HDF5 as Caffe writes it with `snapshot_format: HDF5`: weights are in groups data/LAYER/INDEX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from volary.errors import SettingError
from volary.network.caffe.weights.blob import Blob

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_VALUES = 2**31  # of a blob
MOST_COMPRESSED = 100  # times smaller than in memory; Caffe itself compresses nothing
Value = TypeVar("Value", int, str)


def blobs_in_hdf5(file: Path) -> dict[str, list[Blob]]:
    """The blobs of each layer. Raises SettingError without h5py, or if the file is not as Caffe writes it."""
    with opened(file) as content:
        layers = group_of(content, "data", file)
        groups = {name: group_of(layers, name, file) for name in layers}
        return {name: blobs(group, f"{file}: layer {name!r}: blob") for name, group in groups.items() if len(group)}


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """The file's root. Raises SettingError without h5py, and for a file that cannot be read."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise SettingError(f"{file}: HDF5 needs h5py; accepted: pip install 'volary[hdf5]'") from None
    try:
        with h5py.File(file, "r") as content:
            yield content
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # what h5py makes of damaged files
        raise SettingError(f"{file}: is no HDF5 file that can be read ({str(error).splitlines()[0]})") from None


def group_of(content: Any, name: str, file: Path) -> Any:
    """The group called `name` of a group. Raises SettingError if there is none."""
    import h5py

    found = content.get(name)
    if not isinstance(found, h5py.Group):
        raise SettingError(f"{file}: has no group `{name}`; accepted: HDF5 as Caffe writes it")
    return found


def blobs(group: Any, where: str) -> list[Blob]:
    """The data sets 0, 1, ... of a group. Raises SettingError, which begins with `where`, if one is no blob."""
    import h5py
    import numpy as np

    found = []
    for number in range(len(group)):
        data = group.get(str(number))
        if not isinstance(data, h5py.Dataset) or data.dtype.kind != "f":
            raise SettingError(f"{where} {number} is not there, or has no numbers; accepted: 0, 1, ...")
        if data.size > MOST_VALUES or data.external or data.is_virtual:
            raise SettingError(f"{where} {number} has {data.size:,} values; accepted: up to {MOST_VALUES:,} here")
        stored = data.id.get_storage_size() * (1 if data.chunks is None else MOST_COMPRESSED)
        if stored < data.nbytes:
            raise SettingError(f"{where} {number} has {data.size:,} values, and the file has fewer; accepted: all")
        found.append(Blob(tuple(data.shape), np.asarray(data, dtype="<f4").tobytes()))
    return found


def scalar(content: Any, name: str, kind: type[Value], file: Path) -> Value:
    """One value of the file's root. Raises SettingError if it is not there, or is of another type."""
    import h5py

    found = content.get(name)
    if isinstance(found, h5py.Dataset) and found.size == 1 and not (found.external or found.is_virtual):
        value = found[()]
        value = value.item() if hasattr(value, "item") else value
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        if isinstance(value, kind):
            return value
    raise SettingError(f"{file}: has no `{name}`; accepted: HDF5 as Caffe writes it")
