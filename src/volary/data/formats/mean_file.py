"""Mean images: arrays of NumPy's (.npy), and Caffe's BlobProto (.binaryproto; caffe.proto, BVLC 2014)."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from volary.errors import DataError
from volary.protobuf import FIXED32, FIXED64, LENGTH, VARINT, fields, signed, varint

Planes = NDArray[np.float32]

_NUMPY = b"\x93NUMPY"
_SIZES, _VALUES, _SHAPE = (1, 2, 3, 4), {5: ("<f4", FIXED32), 8: ("<f8", FIXED64)}, 7  # numbers of a BlobProto's fields
_MOST_BYTES, _MOST_FIELDS, _MOST_DIMENSIONS = 1 << 30, 200_000, 4


def read_mean(file: Path) -> Planes:
    """The mean image in a file, shape (channels, height, width) or (channels,), as float32.

    Raises DataError for a file that has none; nothing in it is unpickled.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file}: has {file.stat().st_size:,} bytes; accepted for a mean image: up to 1 GiB")
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None
    found = _array(file) if content.startswith(_NUMPY) else _blob(file, content)
    if found.ndim == 4 and found.shape[0] == 1:
        found = found[0]
    if found.ndim not in (1, 3) or not found.size or not np.isfinite(found).all():
        raise DataError(f"{file}: is no mean image; accepted: (channels, height, width) or (channels,), finite")
    return found


def _array(file: Path) -> Planes:
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)  # as large as the file at most
    except Exception as error:  # numpy parses the header as Python, with whatever that raises
        raise DataError(f"{file}: is no array of numbers ({str(error).splitlines()[0][:200]})") from None
    return np.asarray(found.astype(np.float32) if found.dtype.kind in "fiu" else found.reshape(-1)[:0], np.float32)


def _blob(file: Path, content: bytes) -> Planes:
    sizes, shape, values = dict.fromkeys(_SIZES, 0), list[int](), dict[str, list[memoryview]]()
    try:
        for count, (number, wire, value) in enumerate(fields(content)):
            if count >= _MOST_FIELDS or len(shape) > _MOST_DIMENSIONS:
                raise ValueError(f"more than {_MOST_FIELDS:,} fields, or {_MOST_DIMENSIONS} sizes")
            if number in _SIZES and wire == VARINT and isinstance(value, int):
                sizes[number] = signed(value)
            elif number == _SHAPE and isinstance(value, memoryview):
                shape += _dimensions(value)
            elif number in _VALUES and wire in (LENGTH, _VALUES[number][1]) and isinstance(value, memoryview):
                values.setdefault(_VALUES[number][0], []).append(value)
        shape = shape or [sizes[number] for number in _SIZES]
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(f"{len(shape)} sizes")
        if len(values) != 1 or min(shape) < 0:
            raise ValueError(f"values of {len(values)} types for the sizes {shape}")
        ((kind, parts),) = values.items()
        numbers = np.frombuffer(b"".join(parts), kind)
        if prod(shape) != numbers.size:
            raise ValueError(f"{numbers.size:,} values for the sizes {shape}")
    except ValueError as error:
        raise DataError(f"{file}: is no mean image of Caffe ({error}); accepted: .npy, .binaryproto") from None
    return numbers.astype(np.float32).reshape(shape)


def _dimensions(message: memoryview) -> list[int]:
    found = list[int]()
    for number, wire, value in fields(message):
        if number != 1 or len(found) > _MOST_DIMENSIONS:
            continue
        if isinstance(value, int):
            found.append(signed(value))
        elif wire == LENGTH:  # packed
            place = 0
            while place < len(value) and len(found) <= _MOST_DIMENSIONS:
                one, place = varint(value, place)
                found.append(signed(one))
    return found
