"""What the header of a JPEG file says beside its size: which way is up, how many channels, whether it is alone."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from volary.data.decoding.decoder import Array
from volary.data.records.records import Bytes

_APP0, _APP1, _APP2 = 0xE0, 0xE1, 0xE2
_JFIF_BYTES = 16  # of its segment, without a thumbnail
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15: size and channels
_ORIENTATION = 0x112


class JpegHeader(NamedTuple):
    """turn: EXIF's orientation, 1 to 8; 1 is upright. several: whether other pictures follow (MPO)."""

    turn: int
    channels: int
    several: bool


def is_plain(record: Bytes) -> bool:
    """Whether it has JFIF's segment and no other, as most small files: then there is nothing more to look at."""
    return len(record) > 21 and record[3] == _APP0 and record[5] == _JFIF_BYTES and record[21] < _APP0


def jpeg_header(record: Bytes) -> JpegHeader | None:
    """What stands before the pixels; None if it is no JPEG. A damaged header is found by who decodes them."""
    if bytes(record[:2]) != b"\xff\xd8":
        return None
    turn, channels, several, place = 1, 3, False, 2
    while place + 10 <= len(record) and record[place] == 0xFF:
        marker = record[place + 1]
        start, end = place + 4, place + 2 + (record[place + 2] << 8 | record[place + 3])
        if marker == _APP1 and turn == 1 and bytes(record[start : start + 6]) == b"Exif\0\0":
            turn = _orientation(bytes(record[start + 6 : end]))
        elif marker == _APP2:
            several |= bytes(record[start : start + 4]) == b"MPF\0"
        elif marker in _FRAMES:
            channels = record[place + 9]
            break
        place = end if marker != 0xFF else place + 1
    return JpegHeader(turn, channels, several)


def upright(pixels: Array, turn: int) -> Array:
    """The image (height, width, channels) that is stored in this orientation, as it is to be seen."""
    if turn >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if turn in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if turn in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _orientation(exif: bytes) -> int:
    """Of EXIF's first directory; 1 if that says none."""
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
