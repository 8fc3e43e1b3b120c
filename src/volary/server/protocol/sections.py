"""The places of a slice's encoded frames: the same for the encoder and the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec

ALIGN_BYTES = 16  # of a frame: codecs read frames as words
_PROBES = 256  # of a warm-up, which has far fewer stages


@dataclass(frozen=True, slots=True)
class Section:
    """Values of a slice or bucket from `start` on, as (rows, columns); their frame begins `offset` bytes into all.

    exact: they count who used a parameter, and are not encoded.
    """

    start: int
    rows: int
    columns: int
    offset: int
    frame_bytes: int
    exact: bool = False

    @property
    def end(self) -> int:
        """The place after its last value."""
        return self.start + self.rows * self.columns


def aligned(size_bytes: int) -> int:
    """`size_bytes` of a frame, up to where the next one may begin."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def sections(lengths: Sequence[int], widths: Sequence[int], codec: FrameCodec) -> list[Section]:
    """Find sections of a slice whose parts have so many values, in rows of these widths; the last one ends all frames.

    A codec by rows has a section for each part, any other one for all of the slice.
    """
    if not codec.by_rows:
        lengths, widths = [sum(lengths)], [sum(lengths)]
    found, start, at = list[Section](), 0, 0
    for length, width in zip(lengths, widths, strict=True):
        rows = length // width
        found.append(Section(start, rows, width, at, codec.frame_bytes(rows, width)))
        start += length
        at += aligned(found[-1].frame_bytes)
    return found


def frames_bytes(found: Sequence[Section]) -> int:
    """Bytes of the frames of these sections, which follow each other."""
    return found[-1].offset + found[-1].frame_bytes if found else 0


def stages(codec: FrameCodec) -> list[FrameCodec]:
    """The codecs that it is in the course of a run: itself last, and those of its warm-up."""
    samples = int(getattr(codec, "warm_up_samples", 0))
    return list(dict.fromkeys(codec.at(samples * probe // _PROBES) for probe in range(_PROBES + 1)))
