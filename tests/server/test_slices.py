"""Slices: every value in exactly one, shards with equal shares, rows and blocks whole."""

from __future__ import annotations

from collections import Counter
from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from volary.server.protocol.slices import MOST_PARTS, Slice, cut
from volary.sharding.ranges import Range

ROWS_AND_COLUMNS = st.tuples(st.integers(0, 20), st.integers(1, 20), st.booleans())


@st.composite
def networks(draw):
    """Chunks of whole parameters and of row blocks of one, and the parameters' rows."""
    chunks, rows, names = [], {}, map(str, count())
    for group in draw(st.lists(st.lists(ROWS_AND_COLUMNS, min_size=1, max_size=4), min_size=1, max_size=5)):
        chunk = []
        for height, columns, matrix in group:
            name = next(names)
            if matrix:
                rows[name] = columns
            edges = sorted({0, height, *draw(st.lists(st.integers(0, height), max_size=2))})
            blocks = [Range(name, a * columns, b * columns) for a, b in pairwise(edges)] or [Range(name, 0, 0)]
            if len(group) == 1:
                chunks += [[block] for block in blocks]
            else:
                chunk.append(Range(name, 0, height * columns))
        chunks += [chunk] if chunk else []
    return chunks, rows


def values(parts):
    return Counter((part.name, value) for part in parts for value in range(part.start, part.end))


@given(networks(), st.integers(1, 9), st.integers(1, 16), st.booleans())
def test_every_value_is_in_exactly_one_slice(network, shards, block, whole):
    chunks, rows = network
    slices = cut(chunks, rows, shards, block, whole)
    assert [one.number for one in slices] == list(range(len(slices)))
    assert all(0 <= one.shard < shards and one.size > 0 for one in slices)
    assert values(part for one in slices for part in one.parts) == values(part for chunk in chunks for part in chunk)


@given(networks(), st.integers(1, 9), st.integers(1, 16))
def test_a_slice_lies_in_its_chunk_in_the_chunks_order(network, shards, block):
    chunks, rows = network
    slices = cut(chunks, rows, shards, block)
    assert [one.chunk for one in slices] == sorted(one.chunk for one in slices)
    for number, chunk in enumerate(chunks):
        cuts = [part for one in slices if one.chunk == number for part in one.parts]
        joined: list[Range] = []
        for part in cuts:
            if joined and joined[-1].name == part.name and joined[-1].end == part.start:
                joined[-1] = Range(part.name, joined[-1].start, part.end)
            else:
                joined.append(part)
        assert joined == [part for part in chunk if part.size]


@given(networks(), st.integers(1, 9), st.integers(1, 16))
def test_matrices_are_cut_between_rows_and_others_between_blocks(network, shards, block):
    chunks, rows = network
    edges = {(part.name, edge) for chunk in chunks for part in chunk for edge in (part.start, part.end)}
    for one in cut(chunks, rows, shards, block):
        for part in one.parts:
            for edge in (part.start, part.end):
                assert (part.name, edge) in edges or edge % rows.get(part.name, block) == 0


@given(networks(), st.integers(1, 9), st.integers(1, 16))
def test_shards_have_equal_shares_of_each_chunk_and_of_all_to_a_row_or_block(network, shards, block):
    chunks, rows = network
    slices = cut(chunks, rows, shards, block)
    coarsest = 0
    for number, chunk in enumerate(chunks):
        unit = max(rows.get(part.name, block) for part in chunk)
        coarsest = max(coarsest, unit)
        for load in loads(slices, shards, number):
            assert abs(load - sum(part.size for part in chunk) / shards) <= unit
    all_loads = loads(slices, shards)
    assert max(all_loads) - min(all_loads) <= 2 * coarsest


def test_the_odd_row_of_many_layers_does_not_always_meet_the_same_shard():
    chunks = [[Range(name, 0, 100)] for name in "abcdefgh"]
    assert loads(cut(chunks, dict.fromkeys("abcdefgh", 100), 4), 4) == [200] * 4


@given(st.integers(1, 200), st.integers(1, 4))
def test_a_slice_has_no_more_parts_than_a_header_has_bits(parts, shards):
    chunk = [Range(str(number), 0, 3) for number in range(parts)]
    slices = cut([chunk], {}, shards)
    assert max(len(one.parts) for one in slices) <= MOST_PARTS
    assert values(part for one in slices for part in one.parts) == values(chunk)


def test_kept_whole_the_largest_find_their_shard_first():
    chunk = [Range("a", 0, 10), Range("b", 0, 10), Range("c", 0, 20)]
    assert loads(cut([chunk], {}, 2, whole=True), 2) == [20, 20]


@given(networks(), st.integers(1, 9))
def test_kept_whole_each_parameter_is_one_slice_of_its_last_chunk(network, shards):
    chunks, rows = network
    last = {part.name: number for number, chunk in enumerate(chunks) for part in chunk if part.size}
    slices = cut(chunks, rows, shards, whole=True)
    assert {one.parts[0].name: one.chunk for one in slices} == last
    assert all(len(one.parts) == 1 for one in slices)
    assert [one.chunk for one in slices] == sorted(one.chunk for one in slices)
    sizes = [one.size for one in slices]
    assert max(loads(slices, shards)) - min(loads(slices, shards)) <= max(sizes, default=0)


def loads(slices: list[Slice], shards: int, chunk: int | None = None) -> list[int]:
    """Values of each shard."""
    found = [0] * shards
    for one in slices:
        if chunk is None or one.chunk == chunk:
            found[one.shard] += one.size
    return found
