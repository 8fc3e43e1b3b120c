"""WAV files to samples of -1 to 1: RIFF, RIFX (big-endian) and RF64 with integers or floats. Others are named.

Microsoft and IBM, Multimedia Programming Interface 1.0 (1991); WAVE_FORMAT_EXTENSIBLE; RF64: EBU Tech 3306. Python's
own module knows some of it, and not the same in each version.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from volary.data.decoding.decoder import Array
from volary.data.records.records import Bytes, refuse_large

SAMPLES_LIMIT = 64 * 2**20  # of one file
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_OTHERS = {2: "ADPCM", 6: "A-law", 7: "µ-law", 0x11: "IMA ADPCM", 0x31: "GSM 6.10", 0x50: "MPEG", 0x55: "MP3"}
_GUID_TAIL = bytes.fromhex("800000aa00389b71")  # of a coding that has a number, too
_ACCEPTED = "integers of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits"
_IN_DS64 = 0xFFFFFFFF  # a length that does not fit into 32 bits: an earlier chunk has it


class WavFile(NamedTuple):
    """rate: samples a second. samples (frames, channels) float32."""

    rate: int
    samples: Array


class _Format(NamedTuple):
    coding: int
    channels: int
    rate: int
    frame_bytes: int

    @property
    def width(self) -> int:
        """Bytes of a sample of one channel."""
        return self.frame_bytes // max(1, self.channels)


def wav_file(record: Bytes) -> WavFile:
    """The file in these bytes. Raises ValueError if it is cut, damaged or coded in another way."""
    view = memoryview(record)
    order = {b"RIFF": "<", b"RF64": "<", b"BW64": "<", b"RIFX": ">"}.get(bytes(view[:4]))
    if order is None or bytes(view[8:12]) != b"WAVE":
        raise ValueError("it does not begin as a WAV file (RIFF, RIFX or RF64)")
    described: _Format | None = None
    found: WavFile | None = None
    data_bytes, place = 0, 12
    while place + 8 <= len(view):
        name, (length,) = bytes(view[place : place + 4]), struct.unpack_from(f"{order}I", view, place + 4)
        content = view[place + 8 : place + 8 + length]
        if name == b"data":
            if described is None or found is not None:
                raise ValueError("its samples come before their format, or twice")
            length = data_bytes if length == _IN_DS64 else length
            found = WavFile(described.rate, _samples(view[place + 8 :], length, described, order))
        elif name == b"ds64" and len(content) >= 16:
            (data_bytes,) = struct.unpack_from(f"{order}Q", content, 8)
        elif name == b"fmt ":
            if described is not None:
                raise ValueError("it has its format twice")
            described = _format(content, order)
        place += 8 + length + length % 2  # chunks begin at even bytes
    if found is None:
        raise ValueError("it is truncated: it has no samples")
    return found


def _format(content: memoryview, order: str) -> _Format:
    if len(content) < 16:
        raise ValueError("it is truncated in its format")
    coding, channels, rate, _, frame_bytes, bits = struct.unpack_from(f"{order}HHIIHH", content)
    if coding == _EXTENSIBLE and len(content) >= 40 and bytes(content[32:40]) == _GUID_TAIL:
        (coding,) = struct.unpack_from(f"{order}I", content, 24)
    found = _Format(coding, channels, rate, frame_bytes)
    if not channels or not rate or not frame_bytes or frame_bytes % channels:
        raise ValueError(f"its format is damaged: {channels} channels, {rate} samples a second, {frame_bytes} bytes")
    widths = {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8)}.get(coding, ())
    if found.width not in widths or bits > 8 * found.width:
        name = {_PCM: "integers", _FLOAT: "floats"}.get(coding) or f"coded as {_OTHERS.get(coding, f'{coding:#06x}')}"
        what = f"{name} of {bits} bits in {found.width} bytes" if coding in (_PCM, _FLOAT) else name
        raise ValueError(f"its samples are {what}; accepted: {_ACCEPTED}")
    return found


def _samples(content: memoryview, length: int, described: _Format, order: str) -> Array:
    frames, rest = divmod(length, described.frame_bytes)
    refuse_large(frames * described.channels, SAMPLES_LIMIT, "samples")
    if len(content) < length:
        raise ValueError(f"it is truncated: {len(content)} bytes of {length}")
    if not length and len(content):
        raise ValueError("it does not say how many samples it has, as if it were still being written")
    if rest or not frames:
        raise ValueError(f"it has {length} bytes of samples; accepted: a multiple of {described.frame_bytes}, not 0")
    return _values(content[:length], described, order).reshape(frames, described.channels)


def _values(content: memoryview, described: _Format, order: str) -> Array:
    """Samples of -1 to 1. 8 bits have no sign. Fewer bits than a sample has room for are its upper ones."""
    width = described.width
    values: Array
    if described.coding == _FLOAT:
        with np.errstate(over="ignore"):  # is told as infinite
            values = np.frombuffer(content, dtype=f"{order}f{width}").astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"its sample {int(np.isfinite(values).argmin())} is infinite or no number")
    elif width == 1:
        values = np.frombuffer(content, dtype=np.uint8).astype(np.float32) / 128 - 1
    elif width == 3:  # the upper bytes of 4
        wide = np.zeros((len(content) // 3, 4), dtype=np.uint8)
        wide[:, slice(1, 4) if order == "<" else slice(0, 3)] = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3)
        values = wide.view(f"{order}i4").ravel().astype(np.float32) / 2**31
    else:
        values = np.frombuffer(content, dtype=f"{order}i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return values
