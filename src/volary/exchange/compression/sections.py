"""Cuts a range of a bucket: a slice for each owner, in sections that are encoded one at a time. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from volary.codec.none import FullPrecision
from volary.exchange.gradients.plan import row_values

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.codec._base import FrameCodec
    from volary.exchange.gradients.plan import BucketPlan

ALIGN_BYTES = 16  # of a frame: codecs read frames as words
AS_IT_IS = FullPrecision()

Matrix = tuple[int, int, int]  # its first value in a bucket, rows, columns


@dataclass(frozen=True, slots=True)
class BucketSection:
    """Values of a bucket from `start` on, as (rows, columns); their frame begins `offset` bytes into its slice's.

    exact: they count who used a parameter, and are not encoded.
    """

    start: int
    rows: int
    columns: int
    offset: int
    frame_bytes: int
    exact: bool

    @property
    def end(self) -> int:
        """The place after its last value, in the bucket."""
        return self.start + self.rows * self.columns


@dataclass(frozen=True, slots=True)
class OwnedSlice:
    """What one owner sums: sections one after the other, and how many bytes their frames take."""

    sections: tuple[BucketSection, ...] = ()
    frame_bytes: int = 0

    @property
    def values(self) -> int:
        """The number of values in all sections."""
        return sum(one.end - one.start for one in self.sections)


@dataclass(frozen=True, slots=True)
class BucketPart:
    """What lies of a parameter between `start` and `end` of a bucket; `first`: the number there of its first value."""

    name: str
    parameter: Parameter
    first: int
    start: int
    end: int


def parts_in(plan: BucketPlan, start: int, end: int) -> Iterator[BucketPart]:
    """The parameters that have values between `start` and `end` of a bucket."""
    at = plan.head
    for name, parameter in plan.parameters:
        low, high = max(at, start), min(at + parameter.numel(), end)
        if low < high:
            yield BucketPart(name, parameter, low - at, low, high)
        at += parameter.numel()


def aligned(size_bytes: int) -> int:
    """`size_bytes` of a frame, up to where the next one may begin."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def cut(plan: BucketPlan, codec: FrameCodec, start: int, end: int, parts: int) -> list[OwnedSlice]:
    """Cut the values from `start` to `end` of a bucket as evenly as blocks, or rows of its parameters, can be.

    A codec by rows needs whole rows there.
    """
    body = max(start, min(plan.head, end))
    matrices = list(_matrices(plan, body, end)) if codec.by_rows else []
    bounds = _between_rows(matrices, body, end, parts) if matrices else _between_blocks(codec.block, body, end, parts)
    slices = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        head = [(start, 1, body - start)] if number == 0 and body > start else []
        rows = _clipped(matrices, low, high) if codec.by_rows else _runs(codec, low, high)
        slices.append(_slice(codec, head, list(rows)))
    return slices


def _slice(codec: FrameCodec, head: Sequence[Matrix], body: Sequence[Matrix]) -> OwnedSlice:
    sections, at = list[BucketSection](), 0
    for number, (start, rows, columns) in enumerate([*head, *body]):
        exact = number < len(head)
        size_bytes = (AS_IT_IS if exact else codec).frame_bytes(rows, columns)
        sections.append(BucketSection(start, rows, columns, at, size_bytes, exact))
        at = aligned(at + size_bytes)
    return OwnedSlice(tuple(sections), sections[-1].offset + sections[-1].frame_bytes if sections else 0)


def _between_blocks(block: int, start: int, end: int, parts: int) -> list[int]:
    blocks = -(-(end - start) // block)
    return [min(end, start + blocks * part // parts * block) for part in range(parts + 1)]


def _runs(codec: FrameCodec, start: int, end: int) -> Iterator[Matrix]:
    step = max(1, codec.section_values // codec.block) * codec.block
    for at in range(start, end, step):
        yield at, 1, min(step, end - at)


def _matrices(plan: BucketPlan, start: int, end: int) -> Iterator[Matrix]:
    """The parameters' parts in a range, as rows."""
    for part in parts_in(plan, start, end):
        columns = row_values(part.parameter)
        assert part.first % columns == (part.end - part.start) % columns == 0, "a row is cut in two"
        yield part.start, (part.end - part.start) // columns, columns


def _between_rows(matrices: Sequence[Matrix], start: int, end: int, parts: int) -> list[int]:
    bounds, wanted = [start], [start + (end - start) * part // parts for part in range(1, parts)]
    for first, rows, columns in matrices:
        while wanted and wanted[0] <= first + rows * columns:
            bounds.append(first + (wanted.pop(0) - first + columns // 2) // columns * columns)
    return [*bounds, end]


def _clipped(matrices: Sequence[Matrix], start: int, end: int) -> Iterator[Matrix]:
    for first, rows, columns in matrices:
        low, high = max(first, start), min(first + rows * columns, end)
        if low < high:
            yield low, (high - low) // columns, columns
