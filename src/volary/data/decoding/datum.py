"""Caffe's Datum (caffe.proto, BVLC 2014): an image with its label, encoded or as plain pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from volary.data.decoding.decoder import Array
from volary.data.decoding.images import ImageDecoder
from volary.data.decoding.pixels import PIXELS_LIMIT
from volary.data.records.records import Bytes, refuse_large
from volary.protobuf import LENGTH, VARINT, fields, signed


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
_DATA, _FLOAT_DATA = 4, 6


def parsed(record: Bytes) -> Datum:
    """The message in these bytes; nothing is copied. Raises ValueError if it is cut or something else."""
    found: dict[str, int | memoryview] = {}
    try:
        for number, wire, value in fields(record):
            if number in _NAMES:
                if wire != (LENGTH if number == _DATA else VARINT):
                    raise ValueError(f"wire type {wire} of field {number}")
                found[_NAMES[number]] = signed(value) if isinstance(value, int) else value
            elif number == _FLOAT_DATA:
                found["floats"] = True
    except ValueError as error:
        cut = str(error) == "truncated"
        raise ValueError("the Datum is truncated" if cut else f"{error}: no Datum") from None
    return Datum(**found)  # type: ignore[arg-type]


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
