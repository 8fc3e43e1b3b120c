"""Which parameters travel together, and how a large one is cut."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import nn

from exchange._buckets_of import buckets_of
from volary.codec import ROOM as CODECS
from volary.exchange.choice.bucketing import plan
from volary.exchange.gradients.plan import in_memory_order, laid_out_as, row_values
from volary.exchange.representations.exact import EXACT
from volary.exchange.representations.frames import Frames

MIB = 2**20


def parameters(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[tuple[str, nn.Parameter]]:
    return [(f"p{n}", nn.Parameter(torch.zeros(shape, dtype=dtype))) for n, shape in enumerate(shapes)]


def test_a_size_closes_a_bucket_and_another_type_has_one_of_its_own():
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).double(), nn.Linear(8, 8))
    whole = buckets_of(module, bucket_mb=25)
    assert [bucket.contribution.dtype for bucket in whole.all] == [torch.float64, torch.float32]
    assert [len(bucket.slots) for bucket in whole.all] == [2, 4]
    assert len(buckets_of(nn.Linear(8, 8), bucket_mb=200 / MIB).all) == 2, "64 and 8 values: 288 bytes"
    assert len(buckets_of(nn.Linear(8, 8), bucket_mb=288 / MIB).all) == 1


def test_what_travels_as_it_is_between_encoded_layers_parts_no_bucket():
    encoded = Frames(CODECS.load("onebit")())
    named = parameters((5,), (100,), (5,), (100,), (5,), (100,))
    found = plan(named, 850 / MIB, {name: encoded for name, one in named if one.numel() == 100})
    assert [[name for name, _ in one.parameters] for one in found] == [["p5", "p3"], ["p1"], ["p4", "p2", "p0"]]
    assert [one.representation for one in found] == [encoded, encoded, EXACT]


def test_the_first_layers_have_a_small_bucket_since_the_next_forward_needs_them_first():
    found = plan(parameters((100,), (200_000,), (100_000,), (400_000,), (300_000,)), bucket_mb=3)
    assert [[name for name, _ in one.parameters] for one in found] == [["p4"], ["p3", "p2"], ["p1", "p0"]]


def test_backward_begins_with_a_small_bucket_and_each_next_one_is_twice_as_large_since_the_link_rests_until_then():
    found = plan(parameters(*[(100_000,)] * 50), bucket_mb=8)
    assert [len(one.parameters) for one in found] == [2, 5, 10, 20, 11, 2]
    (small,) = plan(parameters(*[(100_000,)] * 20), bucket_mb=8)
    assert len(small.parameters) == 20, "what is no more than a bucket travels in one piece"


def test_encoded_buckets_are_as_few_as_they_can_be_and_alike_since_what_is_whole_last_is_encoded_last():
    encoded = Frames(CODECS.load("onebit")())
    named = parameters(*[(100_000,)] * 25)
    found = plan(named, 8, {name: encoded for name, _ in named})
    assert [len(one.parameters) for one in found] == [13, 10, 2], "the last has what the next forward needs first"


def test_small_parameters_lie_last_in_the_buckets_of_encoded_ones_if_they_may():
    encoded = Frames(CODECS.load("onebit")())
    named = parameters((5,), (100, 90), (5,), (100, 90), (200_000,))
    travels = {name: encoded for name, one in named if one.dim() == 2}
    large, small = plan(named, 8, travels, beside=True)
    assert ([name for name, _ in small.parameters], small.plain) == (["p3", "p1", "p2", "p0"], 2)
    assert small.plain_start == small.shape.numel - 10
    assert ([name for name, _ in large.parameters], large.plain, large.representation) == (["p4"], 0, EXACT)


def test_a_parameter_of_a_bucket_s_size_travels_alone_in_blocks_of_whole_rows():
    (alone, rest) = plan(parameters((5,), (100, 30)), bucket_mb=4000 / MIB)
    assert [len(one.parameters) for one in (alone, rest)] == [1, 1]
    cuts = alone.cuts(4000 / MIB)
    assert [[part.start // 30 for part in cut.parts] for cut in cuts] == [[0], [33], [66]]
    assert all(part.start % 30 == part.end % 30 == 0 for cut in cuts for part in cut.parts)
    assert [(cut.start, cut.end) for cut in cuts] == [(0, 16 + 990), (1006, 1996), (1996, 3016)]
    assert rest.cuts(4000 / MIB)[0].end == rest.shape.numel == 16 + 5


def test_nothing_is_cut_below_a_row_and_what_has_no_rows_is_cut_anywhere():
    (wide,) = plan(parameters((2, 1000)), bucket_mb=1e-6)
    assert [(cut.start, cut.end) for cut in wide.cuts(1e-6)] == [(0, 1016), (1016, 2016)]
    (flat,) = plan(parameters((10,)), bucket_mb=1e-6)
    assert [cut.end for cut in flat.cuts(12 / MIB)] == [16 + 2, 16 + 5, 16 + 7, 16 + 10]


shapes = some.lists(some.lists(some.integers(1, 9), max_size=4).map(tuple), min_size=1, max_size=6)
kinds = some.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(shapes, some.lists(kinds, min_size=6, max_size=6), some.floats(1e-6, 1e-3), some.floats(1e-6, 1e-3))
def test_every_value_travels_once_and_every_bucket_is_covered(found, types, bucket_mb, chunk_mb):
    named = [
        (str(n), nn.Parameter(torch.zeros(s, dtype=t))) for n, (s, t) in enumerate(zip(found, types, strict=False))
    ]
    plans = plan(named, bucket_mb)
    in_backward = [[-int(name) for name, _ in one.parameters] for one in plans]
    assert all(each == sorted(each) for each in in_backward)
    assert sorted(one for each in in_backward for one in each) == [-int(name) for name, _ in reversed(named)]
    complete = [max(each) for each in in_backward]
    assert complete == sorted(complete)
    for one in plans:
        cuts = one.cuts(chunk_mb)
        assert [0, *(cut.end for cut in cuts)] == [*(cut.start for cut in cuts), one.shape.numel]
        values = {name: [0] for name, _ in one.parameters}
        for cut in cuts:
            for part in cut.parts:
                assert part.start == values[part.name][-1]
                values[part.name].append(part.end)
        assert [ends[-1] for ends in values.values()] == [p.numel() for _, p in one.parameters]


@given(some.lists(some.integers(1, 5), max_size=4), some.randoms())
def test_values_in_memory_order_are_a_view_of_any_dense_parameter(shape, draw):
    order = list(range(len(shape)))
    draw.shuffle(order)
    parameter = nn.Parameter(
        torch.zeros([shape[axis] for axis in order]).permute([order.index(n) for n in range(len(order))])
    )
    assert list(parameter.shape) == shape
    flat = in_memory_order(parameter.detach())
    flat.copy_(torch.arange(flat.numel()))
    piece = torch.arange(flat.numel(), dtype=torch.float32)
    assert torch.equal(laid_out_as(parameter, piece), parameter.detach())
    row = row_values(parameter)
    assert parameter.numel() % row == 0
    if row > 1:
        assert torch.equal(parameter.detach()[0].reshape(-1).sort().values, piece[:row])
