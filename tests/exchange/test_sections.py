"""Slices and their sections: every value once, in order, rows whole."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from volary.codec.none import FullPrecision
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.sections import cut
from volary.exchange.gradients.plan import row_values
from volary.exchange.representations.frames import Frames

SHAPES = st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=4), min_size=1, max_size=5)


class Blocks(FullPrecision):
    block: ClassVar[int] = 48

    def frame_bytes(self, rows: int, columns: int) -> int:
        return rows * columns + 1


class Rows(Blocks):
    by_rows: ClassVar[bool] = True


@given(SHAPES, st.floats(1e-4, 1), st.integers(1, 9), st.booleans(), st.booleans())
def test_no_value_is_lost_or_doubled_and_frames_do_not_overlap(shapes, bucket_mb, parts, by_rows, last):
    codec = Rows() if by_rows else Blocks()
    layout = torch.channels_last if last else torch.contiguous_format
    named = [
        (str(number), nn.Parameter(torch.empty(shape, memory_format=layout if len(shape) == 4 else None)))
        for number, shape in enumerate(shapes)
    ]
    for one in plan(named, bucket_mb, {name: Frames(codec) for name, _ in named}):
        edges = one.pieces(torch.arange(one.shape.numel))[1]
        rows = {
            at for (_, p), edge in zip(one.parameters, edges, strict=True) for at in edge[:: row_values(p)].tolist()
        }
        for piece in one.cuts(bucket_mb):
            slices = cut(one, codec, piece.start, piece.end, parts)
            assert len(slices) == parts
            sections = [section for each in slices for section in each]
            bounds = [piece.start, *(section.end for section in sections)]
            assert [section.start for section in sections] == bounds[:-1]
            assert bounds[-1] == piece.end
            assert [section.exact for section in sections] == [section.start < one.head for section in sections]
            assert not by_rows or all(section.exact or section.start in rows for section in sections)
            for each in slices:
                assert all(a.offset + a.frame_bytes <= b.offset for a, b in pairwise(each))
                assert all(section.offset % 16 == 0 for section in each)


@given(st.integers(1, 9), st.booleans())
def test_what_is_plain_travels_as_it_is_with_all_slices_and_is_never_encoded(parts, by_rows):
    codec = Rows() if by_rows else Blocks()
    shapes = {"a": (40, 30), "b": (30,), "c": (20, 50), "d": (7,)}
    named = [(name, nn.Parameter(torch.empty(shape))) for name, shape in shapes.items()]
    travels = {name: Frames(codec) for name in ("a", "c")}
    [one] = plan(named, 1, travels, beside=True)
    slices = cut(one, codec, 0, one.shape.numel, parts)
    sections = sorted((section for each in slices for section in each), key=lambda section: section.start)
    assert [0, *(section.end for section in sections)] == [
        *(section.start for section in sections),
        one.shape.numel,
    ]
    encoded = [section for section in sections if not section.exact]
    assert (encoded[0].start, encoded[-1].end) == (one.head, one.shape.numel - 37)
    plain = [sum(each.end - each.start for each in own if each.start >= one.plain_start) for own in slices]
    assert max(plain) - min(plain) <= 1


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_slices_differ_by_no_more_than_a_block(numel, parts):
    [one] = plan([("p", nn.Parameter(torch.empty(numel, 1)))], 1000, {"p": Frames(Blocks())})
    sizes = [
        sum(section.end - section.start for section in each if not section.exact)
        for each in cut(one, Blocks(), 0, one.shape.numel, parts)
    ]
    assert max(sizes) - min(sizes) <= 2 * Blocks.block
