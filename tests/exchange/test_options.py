"""What a way would cost, and which one is chosen: no processes, plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from volary.codec import ROOM as CODECS
from volary.exchange import ROOM
from volary.exchange._layers import Layer, layers
from volary.exchange._options import Links, Option, Work, as_factors, as_it_is, encoded
from volary.exchange._seen import Decision, Seen
from volary.exchange._way import EXACT, Factors

SLOW, FAST = 11e6, 3e9  # bytes per second
SQUARE = Layer(("fc.weight", "fc.bias"), 4096 * 4097, 4096, 4096, encodable=True, products=16, factor_values=8192)
KERNEL = Layer(("conv.weight",), 256 * 1152, 256, 1152, encodable=True)
BIAS = Layer(("conv.bias",), 256, 256, 1, encodable=False)
WORK = Work({"onebit": 4e-9, "int8": 3e-9}, 2e-11)


class Known(Seen):
    """Whose work was measured elsewhere: a test's choice must not depend on this machine's."""

    def work(self, codecs: object) -> Work:
        return WORK


def decided(name: str, bytes_per_s: float, *found: Layer, ranks: int = 4, **settings: object) -> list[Decision]:
    links = Links(ranks, 1, bytes_per_s, levels=False)
    decisions: list[Decision] = ROOM.load(name)(**settings).decide(Known(found, links))
    return decisions


@pytest.mark.parametrize("bytes_per_s", [SLOW, 120e6, 600e6])
def test_few_samples_of_a_large_layer_travel_as_factors_and_what_has_none_as_it_is(bytes_per_s):
    assert [one.way for one in decided("auto", bytes_per_s, SQUARE, KERNEL, BIAS)] == ["factors", "exact", "exact"]


def test_many_samples_travel_as_they_are():
    many = replace(SQUARE, products=5000)
    assert [one.way for one in decided("auto", SLOW, many)] == ["exact"]
    assert [one.way for one in decided("factors", SLOW, many)] == ["exact"]


def test_a_codec_is_taken_only_if_it_is_allowed_and_pays():
    def ways(bytes_per_s: float, *allow: str) -> list[str]:
        return [one.way for one in decided("auto", bytes_per_s, KERNEL, BIAS, allow=allow)]

    assert ways(SLOW) == ["exact", "exact"]
    assert ways(SLOW, "onebit", "int8") == ["onebit", "exact"], "a bias is no matrix"
    assert ways(SLOW, "none") == ["exact", "exact"]
    assert ways(FAST, "onebit") == ["exact", "exact"], "encoding takes longer than sending"


@given(
    bytes_per_s=st.floats(1e5, 1e11),
    ranks=st.integers(2, 64),
    rows=st.integers(1, 8192),
    columns=st.integers(1, 8192),
    products=st.one_of(st.none(), st.floats(0, 1e5)),
)
def test_nothing_is_chosen_that_is_expected_to_take_longer_than_as_it_is(bytes_per_s, ranks, rows, columns, products):
    layer = Layer(("it",), rows * columns, rows, columns, rows > 1, products, rows + columns)
    links = Links(ranks, 1, bytes_per_s, levels=False)
    for allow in ((), ("onebit", "int8")):
        (decision,) = decided("auto", bytes_per_s, layer, ranks=ranks, allow=allow)
        assert decision.seconds <= as_it_is(layer, links).seconds
        if decision.way == "factors":
            assert decision.seconds == as_factors(layer, Factors(), links, WORK).seconds


def test_bytes_are_those_of_the_link_that_is_shared():
    flat, shared, levels = Links(4, 1, 1.0, levels=False), Links(4, 2, 1.0, levels=False), Links(4, 2, 1.0, levels=True)
    assert [one.summed_bytes(100) for one in (flat, shared, levels)] == [150, 150, 100]
    assert [one.sliced_bytes(100) for one in (flat, shared, levels)] == [150, 200, 100]
    assert [one.spread_bytes(100) for one in (flat, shared)] == [300, 400]
    kernel = encoded(KERNEL, CODECS.load("onebit")(), "onebit", flat, WORK)
    assert kernel.link_bytes == pytest.approx(as_it_is(KERNEL, flat).link_bytes / 30, rel=0.02)
    some = as_factors(SQUARE, Factors(neighbours=1), flat, WORK)
    assert some.link_bytes == pytest.approx(as_factors(SQUARE, Factors(), flat, WORK).link_bytes / 3)
    assert isinstance(some, Option) and some.way != EXACT


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 20)
        self.first = nn.Linear(20, 60)
        self.frozen = nn.Linear(60, 60).requires_grad_(requires_grad=False)
        self.last = nn.Linear(60, 3)


def test_layers_are_the_trained_parameters_and_a_product_takes_its_bias_along():
    found = layers(Net(), {"words.weight": 35.0, "first.weight": 16.0})
    assert [one.names for one in found] == [
        ("words.weight",),
        ("first.weight", "first.bias"),
        ("last.weight",),
        ("last.bias",),
    ]
    words, first, last, _ = found
    assert (words.products, words.factor_values, words.values) == (35.0, 21, 20000)
    assert (first.factor_values, first.values, first.encodable) == (80, 1260, True)
    assert last.products is None and not last.encodable, "of so few values"
