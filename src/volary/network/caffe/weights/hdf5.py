"""Weights in HDF5, as Caffe writes them with `snapshot_format: HDF5`: groups data/LAYER/INDEX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.network.caffe.weights.blob import Blob

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_VALUES = 2**31  # of a blob


def blobs_in_hdf5(file: Path) -> dict[str, list[Blob]]:
    """The blobs of each layer. Raises SettingError without h5py, or if the file is not as Caffe writes it."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise SettingError(f"{file}: HDF5 needs h5py; accepted: pip install 'volary[hdf5]'") from None
    try:
        with h5py.File(file, "r") as opened:
            layers = opened.get("data")
            if not isinstance(layers, h5py.Group):
                raise SettingError(f"{file}: has no group `data`; accepted: HDF5 as Caffe writes it")
            return {name: _blobs(group, f"{file}: layer {name!r}") for name, group in layers.items() if len(group)}
    except (OSError, RuntimeError, KeyError) as error:
        raise SettingError(f"{file}: is no HDF5 file that can be read ({str(error).splitlines()[0]})") from None


def _blobs(group: Any, where: str) -> list[Blob]:
    import h5py
    import numpy as np

    found = []
    for number in range(len(group)):
        data = group.get(str(number))
        if not isinstance(data, h5py.Dataset) or data.dtype.kind != "f":
            raise SettingError(f"{where}: has no blob {number} of numbers; accepted: blobs 0, 1, ...")
        if data.size > MOST_VALUES or data.external or data.is_virtual:
            raise SettingError(f"{where}: blob {number} has {data.size:,} values; accepted: up to {MOST_VALUES:,} here")
        found.append(Blob(tuple(data.shape), np.asarray(data, dtype="<f4").tobytes()))
    return found
