"""Cuts a range of a bucket: a slice for each owner, in sections that are encoded one at a time. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from volary.codec.none import FullPrecision
from volary.exchange.gradients.plan import parts_in, row_values
from volary.server.protocol.sections import Section, section

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec
    from volary.comm.sums.owned import Division
    from volary.exchange.gradients.plan import BucketPlan

AS_IT_IS = FullPrecision()

Matrix = tuple[int, int, int]  # its first value in a bucket, rows, columns


def cut(plan: BucketPlan, codec: FrameCodec, start: int, end: int, parts: int) -> list[list[Section]]:
    """Cut the values from `start` to `end` of a bucket as evenly as blocks, or rows of its parameters, can be.

    Each of `parts` is what one owner sums, in sections. A codec by rows needs whole rows there.
    """
    body = max(start, min(plan.head, end))
    plain = max(body, min(plan.plain_start, end))
    matrices = list(_matrices(plan, body, plain)) if codec.by_rows else []
    bounds = (
        _between_rows(matrices, body, plain, parts) if matrices else _between_blocks(codec.block, body, plain, parts)
    )
    slices = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        head = [(start, 1, body - start)] if number == 0 and body > start else []
        rows = _clipped(matrices, low, high) if codec.by_rows else _runs(codec, low, high)
        first, last = (plain + (end - plain) * part // parts for part in (number, number + 1))
        slices.append(_slice(codec, head, list(rows), [(first, 1, last - first)] if first < last else []))
    return slices


def cut_as_owned(plan: BucketPlan, codec: FrameCodec, start: int, division: Division) -> list[list[Section]]:
    """Cut a range of a bucket, from value `start` on, as it is owned: each owner's pieces, and what is everybody's."""
    head = [(start, 1, division.everybody)] if division.everybody else []
    slices = []
    for pieces in division.owned:
        bounds = [(start + low, start + high) for low, high in pieces]
        if codec.by_rows:
            body = [matrix for low, high in bounds for matrix in _part_rows(plan, low, high)]
        else:
            body = [run for low, high in bounds for run in _runs(codec, low, high)]
        slices.append(_slice(codec, head, body))
    return slices


def _part_rows(plan: BucketPlan, start: int, end: int) -> Iterator[Matrix]:
    """The parameters' parts in a range, as whole rows and, before and after them, parts of one."""
    parameters = dict(plan.parameters)
    for at, part in parts_in(plan, start, end):
        columns = row_values(parameters[part.name])
        first = min(part.end, -(-part.start // columns) * columns)
        last = max(first, part.end // columns * columns)
        bounds = part.start, first, last, part.end
        for (low, high), rows in zip(pairwise(bounds), (1, (last - first) // columns, 1), strict=True):
            if low < high:
                yield at + low - part.start, rows, (high - low) // rows


def _slice(
    codec: FrameCodec, head: Sequence[Matrix], body: Sequence[Matrix], plain: Sequence[Matrix] = ()
) -> list[Section]:
    """Sections of what one owner sums: `head` and `plain` as they are."""
    found, at = list[Section](), 0
    for one, pieces in ((AS_IT_IS, head), (codec, body), (AS_IT_IS, plain)):
        for start, shapes in _together(one, pieces):
            found.append(section(one, start, shapes, at, exact=pieces is not body))
            at = found[-1].offset + found[-1].frame_bytes
    return found


def _together(codec: FrameCodec, pieces: Sequence[Matrix]) -> list[tuple[int, list[tuple[int, int]]]]:
    """The first value, and the shapes, of what is encoded at once: matrices that follow each other."""
    found, end = list[tuple[int, list[tuple[int, int]]]](), -1
    for start, rows, columns in pieces:
        if start != end or not codec.by_rows:
            found.append((start, []))
        found[-1][1].append((rows, columns))
        end = start + rows * columns
    return found


def _between_blocks(block: int, start: int, end: int, parts: int) -> list[int]:
    blocks = -(-(end - start) // block)
    return [min(end, start + blocks * part // parts * block) for part in range(parts + 1)]


def _runs(codec: FrameCodec, start: int, end: int) -> Iterator[Matrix]:
    step = max(1, codec.section_values // codec.block) * codec.block
    for at in range(start, end, step):
        yield at, 1, min(step, end - at)


def _matrices(plan: BucketPlan, start: int, end: int) -> Iterator[Matrix]:
    """The parameters' parts in a range, as rows."""
    parameters = dict(plan.parameters)
    for at, part in parts_in(plan, start, end):
        columns = row_values(parameters[part.name])
        assert part.start % columns == part.size % columns == 0, "a row is cut in two"
        yield at, part.size // columns, columns


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
