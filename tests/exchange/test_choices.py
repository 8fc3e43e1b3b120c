"""What a way would cost, and which one is chosen: no processes, plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from volary.codec import ROOM as CODECS
from volary.codec._base import Codec, Layer
from volary.codec._patterns import Patterns
from volary.errors import SettingError
from volary.exchange.choice.choices import decided, pushed, refuse_strangers
from volary.exchange.choice.costs import LinkCosts, WorkTimes
from volary.exchange.choice.layers import layers
from volary.exchange.choice.measurements import Decision, Measurements
from volary.exchange.representations.exact import EXACT
from volary.exchange.representations.factors import Factors
from volary.exchange.representations.frames import Frames

SLOW, FAST = 11e6, 3e9  # bytes per second
SQUARE = Layer(("fc.weight", "fc.bias"), 4096 * 4097, 4096, 4096, encodable=True, products=16, factor_values=8192)
KERNEL = Layer(("conv.weight",), 256 * 1152, 256, 1152, encodable=True)
BIAS = Layer(("conv.bias",), 256, 256, 1, encodable=False)
WORK = WorkTimes({"onebit": 4e-9, "int8": 3e-9}, 2e-11)


class Known(Measurements):
    """Whose work was measured elsewhere: a test's choice must not depend on this machine's."""

    def work(self, codecs: object) -> WorkTimes:
        return WORK


def made(name: str, **settings: object) -> Codec:
    codec: Codec = CODECS.load(name)(**settings)
    return codec


def chosen(codec: Codec, bytes_per_s: float, *found: Layer, ranks: int = 4) -> list[Decision]:
    return decided(codec, Known(found, LinkCosts(ranks, 1, bytes_per_s, levels=False)))


def ways(codec: Codec, bytes_per_s: float, *found: Layer) -> list[str]:
    return [one.way for one in chosen(codec, bytes_per_s, *found)]


@pytest.mark.parametrize("bytes_per_s", [SLOW, 120e6, 600e6])
def test_few_samples_of_a_large_layer_travel_as_factors_and_what_has_none_as_it_is(bytes_per_s):
    assert ways(made("auto"), bytes_per_s, SQUARE, KERNEL, BIAS) == ["factors", "exact", "exact"]


def test_many_samples_travel_as_they_are():
    many = replace(SQUARE, products=5000)
    assert ways(made("auto"), SLOW, many) == ways(made("factors"), SLOW, many) == ["exact"]


def test_a_codec_is_taken_only_if_it_is_allowed_and_pays():
    def by(bytes_per_s: float, *allow: str) -> list[str]:
        return ways(made("auto", allow=allow), bytes_per_s, KERNEL, BIAS)

    assert by(SLOW) == ["exact", "exact"]
    assert by(SLOW, "onebit", "int8") == ["onebit", "exact"], "a bias is no matrix"
    assert by(SLOW, "none") == ["exact", "exact"]
    assert by(FAST, "onebit") == ["exact", "exact"], "encoding takes longer than sending"


def test_each_layer_has_the_codec_of_the_first_pattern_that_matches_its_weight():
    by_name = Patterns({"fc*": made("factors"), "conv.w*": made("onebit"), "*": made("none")})
    assert ways(by_name, SLOW, SQUARE, KERNEL, BIAS) == ["factors", "onebit", "exact"]
    assert [one.why for one in chosen(by_name, SLOW, KERNEL)] == ["as set"]
    assert by_name.of("conv.weight") == made("onebit") and by_name.of("fc.bias") == made("factors")
    assert Patterns({"fc*": made("onebit")}).of("conv.weight").exact, "what no pattern matches travels as it is"


@given(
    bytes_per_s=st.floats(1e5, 1e11),
    ranks=st.integers(2, 64),
    rows=st.integers(1, 8192),
    columns=st.integers(1, 8192),
    products=st.one_of(st.none(), st.floats(0, 1e5)),
)
def test_nothing_is_chosen_that_is_expected_to_take_longer_than_as_it_is(bytes_per_s, ranks, rows, columns, products):
    layer = Layer(("it",), rows * columns, rows, columns, rows > 1, products, rows + columns)
    links = LinkCosts(ranks, 1, bytes_per_s, levels=False)
    for allow in ((), ("onebit", "int8")):
        (decision,) = chosen(made("auto", allow=allow), bytes_per_s, layer, ranks=ranks)
        assert decision.seconds <= EXACT.link_bytes(layer, links) / bytes_per_s
        if decision.way == "factors":
            seconds = Factors().link_bytes(layer, links) / bytes_per_s + Factors().work_s(layer, links, WORK)
            assert decision.seconds == seconds


def test_bytes_are_those_of_the_link_that_is_shared():
    flat, shared, levels = (
        LinkCosts(4, 1, 1.0, levels=False),
        LinkCosts(4, 2, 1.0, levels=False),
        LinkCosts(4, 2, 1.0, levels=True),
    )
    assert [one.summed_bytes(100) for one in (flat, shared, levels)] == [150, 150, 100]
    assert [one.sliced_bytes(100) for one in (flat, shared, levels)] == [150, 200, 100]
    assert [one.spread_bytes(100) for one in (flat, shared)] == [300, 400]
    kernel = Frames(CODECS.load("onebit")()).link_bytes(KERNEL, flat)
    assert kernel == pytest.approx(EXACT.link_bytes(KERNEL, flat) / 30, rel=0.02)
    some = Factors(neighbours=1).link_bytes(SQUARE, flat)
    assert some == pytest.approx(Factors().link_bytes(SQUARE, flat) / 3)


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


def test_servers_are_pushed_factors_where_those_are_fewer_bytes_and_frames_where_a_pattern_or_auto_says_so():
    def of(codec: Codec, samples: int, servers: int = 2) -> dict[str, str]:
        return {name: way.name for name, way in pushed(codec, Net(), samples, servers).items()}

    first = {"first.weight": "factors", "first.bias": "factors"}
    assert of(made("factors"), 4) == first  # 4 * (60 + 2 * 20) values of 1200
    assert of(made("factors"), 12) == {}, "as many bytes are no gain"
    assert of(made("auto"), 4) == first
    assert of(made("auto", allow=("onebit",)), 4) == {
        "words.weight": "onebit", "first.weight": "onebit", "first.bias": "onebit",
    }  # fmt: skip
    by_name = Patterns({"words*": made("int8"), "*.bias": made("onebit"), "*": made("factors")})
    assert of(by_name, 4) == {"words.weight": "int8", **first}, "a bias goes with its weight's factors"


def test_a_pattern_that_matches_no_trained_parameter_is_refused():
    refuse_strangers(Patterns({"first.*": made("onebit"), "*": made("none")}), Net())
    with pytest.raises(SettingError, match=r"matches 'frozen\*'; accepted: patterns of words.weight, first.weight,"):
        refuse_strangers(Patterns({"frozen*": made("onebit")}), Net())
