"""Cuts of a chain into stages: the best one is what a search of all of them finds."""

from __future__ import annotations

from itertools import combinations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.partition.pipelining.cuts import LayerCost, best_cut, stage_seconds

LAYERS = st.lists(
    st.builds(
        LayerCost,
        seconds=st.integers(0, 9).map(float),
        out_bytes=st.integers(0, 9),
        trained=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def slowest(layers, cut, bytes_per_s):
    """The time of the slowest stage; infinite if the cut is none."""
    ends = [*cut[1:], len(layers)]
    for start, end in zip(cut, ends, strict=True):
        if not any(one.trained for one in layers[start:end]):
            return inf
    return max(stage_seconds(layers, start, end, bytes_per_s) for start, end in zip(cut, ends, strict=True))


@given(LAYERS, st.integers(1, 5), st.data(), st.sampled_from([inf, 1.0, 4.0]))
def test_the_cut_is_the_best_of_all(layers, stages, data, bytes_per_s):
    legal = data.draw(st.sets(st.integers(1, 7)))
    places = sorted(place for place in legal if place < len(layers))
    every = [[0, *chosen] for chosen in combinations(places, stages - 1)]
    best = min((slowest(layers, cut, bytes_per_s) for cut in every), default=inf)
    found = best_cut(layers, stages, legal, bytes_per_s=bytes_per_s)
    if best == inf:
        assert found is None
        return
    assert found in every
    assert slowest(layers, found, bytes_per_s) == best


def test_a_stage_takes_its_layers_time_and_that_of_what_crosses_its_ends_there_and_back():
    layers = [LayerCost(1.0, out_bytes=10), LayerCost(2.0, out_bytes=30), LayerCost(4.0, out_bytes=50)]
    assert stage_seconds(layers, 1, 2, bytes_per_s=20) == pytest.approx(2.0 + 2 * (10 + 30) / 20)
    assert stage_seconds(layers, 0, 3, bytes_per_s=1) == 7.0


def test_of_cuts_that_are_as_quick_the_most_even_one_is_taken():
    layers = [LayerCost(6.0), LayerCost(1.0), LayerCost(1.0), LayerCost(1.0), LayerCost(1.0)]
    assert best_cut(layers, 3, range(5)) == [0, 1, 3]
