"""The places of a slice's encoded frames: the same for the encoder and the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.codec.kernels.batches import MatrixBatch, aligned

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec

_PROBES = 256  # of a warm-up, which has far fewer stages


@dataclass(frozen=True, slots=True)
class Section:
    """Values `start` to `end` of a slice or bucket, as matrices of these shapes; their frames begin `offset` bytes into
    all.

    exact: they are not encoded, as what counts who used a parameter.
    """

    start: int
    end: int
    shapes: tuple[tuple[int, int], ...]
    offset: int
    frame_bytes: int
    exact: bool = False


def section(codec: FrameCodec, start: int, shapes: Sequence[tuple[int, int]], offset: int, *, exact: bool) -> Section:
    """The section of matrices of these shapes that lie one after the other."""
    batch = MatrixBatch(codec, shapes)
    return Section(start, start + batch.size, tuple(shapes), aligned(offset), batch.frame_bytes, exact)


def of_slice(lengths: Sequence[int], widths: Sequence[int], codec: FrameCodec) -> Section:
    """The section that a slice is whose parts have so many values, in rows of these widths.

    A codec by rows has a matrix for each part, any other one for all of the slice.
    """
    if not codec.by_rows:
        lengths, widths = [sum(lengths)], [sum(lengths)]
    shapes = [(length // width, width) for length, width in zip(lengths, widths, strict=True)]
    return section(codec, 0, shapes, 0, exact=False)


def frames_bytes(found: Sequence[Section]) -> int:
    """Bytes of the frames of these sections, which follow each other."""
    return found[-1].offset + found[-1].frame_bytes if found else 0


def stages(codec: FrameCodec) -> list[FrameCodec]:
    """The codecs that it is in the course of a run: itself last, and those of its warm-up."""
    samples = int(getattr(codec, "warm_up_samples", 0))
    return list(dict.fromkeys(codec.at(samples * probe // _PROBES) for probe in range(_PROBES + 1)))
