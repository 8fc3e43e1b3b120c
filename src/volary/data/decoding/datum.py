"""Caffe's Datum (caffe.proto, BVLC 2014): an image with its label, encoded or as plain pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from volary.data.decoding.decoder import Array
from volary.data.decoding.images import ImageDecoder
from volary.data.decoding.pixels import PIXELS_LIMIT
from volary.data.records.records import Bytes, refuse_large

_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes of the wire types that are skipped


@dataclass(frozen=True)
class Datum:
    """The fields that a data set has. data: an image file if it is encoded, else planes of uint8.

    label: None if it has none. floats: whether it has `float_data`, which is no image of bytes.
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    data: memoryview = memoryview(b"")  # noqa: RUF009 -- cannot be written
    label: int | None = None
    encoded: int = 0
    floats: bool = False


_NAMES = {1: "channels", 2: "height", 3: "width", 4: "data", 5: "label", 7: "encoded"}
_FLOAT_DATA = 6


def parsed(record: Bytes) -> Datum:
    """The message in these bytes; nothing is copied. Raises ValueError if it is cut or something else."""
    view, place = memoryview(record), 0
    fields: dict[str, int | memoryview] = {}
    while place < len(view):
        tag, place = _varint(view, place)
        number, wire = tag >> 3, tag & 7
        value: int | memoryview = 0
        if wire == _VARINT:
            value, place = _varint(view, place)
            value -= (value >> 63) << 64  # of negative numbers it has the two's complement
        elif wire == _LENGTH:
            length, place = _varint(view, place)
            value, place = view[place : place + length], place + length
        elif wire in _FIXED:
            place += _FIXED[wire]
        else:
            raise ValueError(f"wire type {wire} at byte {place}: no Datum")
        if place > len(view):
            raise ValueError("the Datum is truncated")
        if number in _NAMES:
            if (wire == _LENGTH) != (number == 4):
                raise ValueError(f"field {number} has wire type {wire}: no Datum")
            fields[_NAMES[number]] = value
        elif number == _FLOAT_DATA:
            fields["floats"] = True
    return Datum(**fields)  # type: ignore[arg-type]


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(view) or shift > 63:
            raise ValueError("the Datum is truncated")
        byte = view[place]
        value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128:
            return value, place


@dataclass(frozen=True, eq=False)
class DatumDecoder:
    """image: what decodes those that are encoded. bgr: whether three plain planes are blue, green, red, as in Caffe."""

    image: ImageDecoder
    bgr: bool
    kind: ClassVar[str] = "a Datum with an image"

    def __call__(self, record: Bytes, out: Array | None = None) -> Array:
        """Decode the image of one Datum."""
        datum = parsed(record)
        if datum.encoded:
            return self.image(datum.data, out)
        if datum.floats and not datum.data:
            raise ValueError("it has float_data; accepted: data, encoded or of bytes")
        refuse_large(datum.height * datum.width, PIXELS_LIMIT, f"pixels ({datum.width}x{datum.height})")
        shape = datum.channels, datum.height, datum.width
        if datum.channels not in (1, 3):
            raise ValueError(f"it has {datum.channels} channels; accepted: 1 (grey), 3 (colour)")
        if not datum.height or not datum.width:
            raise ValueError(f"it has no pixels: {shape}")
        if len(datum.data) != datum.channels * datum.height * datum.width:
            raise ValueError(f"it has {len(datum.data)} bytes of pixels for {shape}")
        planes = np.frombuffer(datum.data, dtype=np.uint8).reshape(shape)
        if self.bgr:
            planes = planes[::-1]
        return self.image.fitted(np.ascontiguousarray(planes.transpose(1, 2, 0)))

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        return self.image.other(shape, first)

    def dropped(self) -> list[str]:
        return self.image.dropped()
