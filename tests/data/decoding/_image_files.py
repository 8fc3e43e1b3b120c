"""Image files written by hand, in variants that no library writes. Each holds the picture that it is given."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def saved(image: Image.Image, kind: str, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


def packed_rows(samples: np.ndarray, bits: int) -> list[bytes]:
    """Rows of samples (height, width) or (height, width, channels), the first in the highest bits, big-endian."""
    rows = samples.reshape(len(samples), -1)
    if bits == 16:
        return [row.astype(">u2").tobytes() for row in rows]
    spread = (rows[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    return [np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in spread]


def png(samples: np.ndarray, bits: int, colour: int, *chunks: tuple[bytes, bytes], interlaced: bool = False) -> bytes:
    """colour: the type that the header says. chunks: what comes before the pixels."""
    passes = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [samples]
    rows = [b"\0" + row for one in passes if one.size for row in packed_rows(one, bits)]
    head = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, colour, 0, 0, interlaced)
    whole = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in whole
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(pixels: bytes, size: tuple[int, int], tags: dict[int, Sequence[int]], *, order: str = "<") -> bytes:
    """One page in one strip. tags: beside size and place; each is of 32 bits, which any reader takes."""
    width, height = size
    known = {256: [width], 257: [height], 259: [1], 277: [len(tags.get(258, [1]))], 278: [height], 279: [len(pixels)]}
    entries = dict(sorted({**known, 273: [8], **tags}.items()))
    directory = 8 + len(pixels) + len(pixels) % 2
    place = directory + 2 + 12 * len(entries) + 4
    body, behind = b"", b""
    for tag, values in entries.items():
        packed = struct.pack(f"{order}{len(values)}I", *values)
        body += struct.pack(f"{order}HHI", tag, 4, len(values))
        body += packed if len(values) == 1 else struct.pack(f"{order}I", place + len(behind))
        behind += packed if len(values) > 1 else b""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", directory)
    pixels += b"\0" * (len(pixels) % 2)
    return head + pixels + struct.pack(f"{order}H", len(entries)) + body + bytes(4) + behind


def bmp(
    pixels: bytes, size: tuple[int, int], bits: int, *, palette: bytes = b"", packing: int = 0, masks: bytes = b""
) -> bytes:
    """pixels: rows from the bottom up, each filled up to 4 bytes; from the top down if the height is negative."""
    start = 14 + 40 + len(masks) + len(palette)
    head = struct.pack("<IiiHHIIiiII", 40, *size, 1, bits, packing, len(pixels), 0, 0, len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + head + masks + palette + pixels
