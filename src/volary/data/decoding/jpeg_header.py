"""Reads the header of a JPEG file, beside its size: which way is up, how many channels, whether it is alone."""

from __future__ import annotations

from typing import NamedTuple

from volary.data.decoding.exif import orientation_of
from volary.data.records.records import Bytes

_APP0, _APP1, _APP2 = 0xE0, 0xE1, 0xE2
_JFIF_BYTES = 16  # of its segment, without a thumbnail
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15: size and channels


class JpegHeader(NamedTuple):
    """turn: EXIF's orientation, 1 to 8; 1 is upright. several: whether other pictures follow (MPO)."""

    turn: int
    channels: int
    several: bool


def is_plain(record: Bytes) -> bool:
    """Whether it has JFIF's segment and no other, as most small files: then there is nothing more to look at."""
    return len(record) > 21 and record[3] == _APP0 and record[5] == _JFIF_BYTES and record[21] < _APP0


def jpeg_header(record: Bytes) -> JpegHeader | None:
    """Read what stands before the pixels; None if it is no JPEG. A damaged header is found when pixels are decoded."""
    if bytes(record[:2]) != b"\xff\xd8":
        return None
    turn, channels, several, place = 1, 3, False, 2
    while place + 10 <= len(record) and record[place] == 0xFF:
        marker = record[place + 1]
        start, end = place + 4, place + 2 + (record[place + 2] << 8 | record[place + 3])
        if marker == _APP1 and turn == 1 and bytes(record[start : start + 6]) == b"Exif\0\0":
            turn = orientation_of(bytes(record[start + 6 : end]))
        elif marker == _APP2:
            several |= bytes(record[start : start + 4]) == b"MPF\0"
        elif marker in _FRAMES:
            channels = record[place + 9]
            break
        place = end if marker != 0xFF else place + 1
    return JpegHeader(turn, channels, several)
