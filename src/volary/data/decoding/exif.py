"""EXIF's orientation: how a camera that was turned has stored what it saw."""

from __future__ import annotations

import struct

import numpy as np

from volary.data.decoding.decoder import Array

_ORIENTATION = 0x112


def upright(pixels: Array, turn: int) -> Array:
    """The image (height, width, channels) that is stored in this orientation, as it is to be seen."""
    if turn >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if turn in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if turn in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def orientation_of(exif: bytes) -> int:
    """Read the orientation in EXIF's first directory; 1 if it has none."""
    order = "<" if exif[:2] == b"II" else ">"
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for entry in range(count):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, start + 2 + 12 * entry)
            if tag == _ORIENTATION:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:  # it is cut, or no EXIF: then the image is as it is stored
        pass
    return 1
