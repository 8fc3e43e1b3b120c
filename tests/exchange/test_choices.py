"""Costs of representations, and which one is chosen: no processes, plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from volary.codec import ROOM as CODECS
from volary.codec._base import Codec, Layer
from volary.codec.by_layer.patterns import Patterns
from volary.errors import SettingError
from volary.exchange.choice.choices import pushed, refuse_strangers
from volary.exchange.choice.costs import LinkCosts, WorkTimes, step_s
from volary.exchange.choice.layers import layers
from volary.exchange.choice.tables import (
    CLEARLY,
    CLOSE,
    Decision,
    StepFigures,
    Table,
    fitting,
    tables,
    worth_comparing,
)
from volary.exchange.gradients.plan import BYTES_PER_MIB
from volary.exchange.representations import representation_of
from volary.exchange.representations.exact import EXACT
from volary.exchange.representations.factors import Factors
from volary.exchange.representations.frames import Frames
from volary.train.strategies.comparison import Comparison

SLOW, FAST = 11e6, 3e9  # bytes per second
SQUARE = Layer(("fc.weight", "fc.bias"), 4096 * 4097, 4096, 4096, encodable=True, products=16, factor_values=8192)
KERNEL = Layer(("conv.weight",), 256 * 1152, 256, 1152, encodable=True)
BIAS = Layer(("conv.bias",), 256, 256, 1, encodable=False)
WORK = WorkTimes({"onebit": 4e-9, "int8": 3e-9}, 2e-11, 2e-10)


def made(name: str, **settings: object) -> Codec:
    codec: Codec = CODECS.load(name)(**settings)
    return codec


def figures(bytes_per_s: float, *found: Layer, ranks: int = 4, compute_s: float = 0.0, cores: int = 1) -> StepFigures:
    return StepFigures(found, LinkCosts(ranks, 1, bytes_per_s, levels=False), WORK, compute_s, cores)


def chosen(codec: Codec, bytes_per_s: float, *found: Layer) -> Sequence[Decision]:
    return tables(codec, figures(bytes_per_s, *found))[0].decisions


def representations(codec: Codec, bytes_per_s: float, *found: Layer) -> list[str]:
    return [one.representation for one in chosen(codec, bytes_per_s, *found)]


@pytest.mark.parametrize("bytes_per_s", [SLOW, 120e6, 600e6])
def test_few_samples_of_a_large_layer_travel_as_factors_and_what_has_none_as_it_is(bytes_per_s):
    assert representations(made("auto"), bytes_per_s, SQUARE, KERNEL, BIAS) == ["factors", "exact", "exact"]


def test_many_samples_travel_as_they_are():
    many = replace(SQUARE, products=5000)
    assert representations(made("auto"), SLOW, many) == representations(made("factors"), SLOW, many) == ["exact"]


def test_a_codec_is_taken_only_if_it_is_allowed_and_pays():
    def by(bytes_per_s: float, *allow: str) -> list[str]:
        return representations(made("auto", allow=allow), bytes_per_s, KERNEL, BIAS)

    assert by(SLOW) == ["exact", "exact"]
    assert by(SLOW, "onebit", "int8") == ["onebit", "exact"], "a bias is no matrix"
    assert by(SLOW, "none") == ["exact", "exact"]
    assert by(FAST, "onebit") == ["exact", "exact"], "encoding takes longer than sending"


def test_each_layer_has_the_codec_of_the_first_pattern_that_matches_its_weight():
    by_name = Patterns({"fc*": made("factors"), "conv.w*": made("onebit"), "*": made("none")})
    assert representations(by_name, SLOW, SQUARE, KERNEL, BIAS) == ["factors", "onebit", "exact"]
    assert [one.why for one in chosen(by_name, SLOW, KERNEL)] == ["as set"]
    assert by_name.of("conv.weight") == made("onebit") and by_name.of("fc.bias") == made("factors")
    assert Patterns({"fc*": made("onebit")}).of("conv.weight").exact, "what no pattern matches travels as it is"


def test_small_layers_share_the_messages_of_a_bucket_and_each_matrix_takes_the_calls_of_a_frame():
    small = [Layer((f"conv{number}.weight",), 128 * 128, 128, 128, encodable=True) for number in range(16)]  # 1 MiB
    links = LinkCosts(4, 1, math.inf, levels=False, message_s=0.25)
    work = WorkTimes({"onebit": 0.0, "powersgd": 0.0}, 0.0, matrices={"powersgd": 0.125})

    def expected_s(codec: Codec) -> float:
        (table,) = tables(codec, StepFigures(small, links, work, bucket_bytes=BYTES_PER_MIB))
        return sum(one.seconds for one in table.decisions)

    assert expected_s(made("onebit")) == pytest.approx(2 * 0.25)
    assert expected_s(made("powersgd")) == pytest.approx(2 * 0.25 + 16 * 0.125)


def any_layer(number: int, rows: int, columns: int, products: float | None) -> Layer:
    return Layer((f"layer{number}",), rows * columns, rows, columns, rows > 1, products, rows + columns)


LAYERS = st.builds(any_layer, st.just(0), st.integers(1, 8192), st.integers(1, 8192), st.none() | st.floats(0, 1e5))
SEEN = st.builds(
    lambda found, bytes_per_s, ranks, compute_s, cores: figures(
        bytes_per_s,
        *(replace(layer, names=(f"layer{number}",)) for number, layer in enumerate(found)),
        ranks=ranks,
        compute_s=compute_s,
        cores=cores,
    ),
    st.lists(LAYERS, min_size=1, max_size=4),
    st.floats(1e5, 1e11),
    st.integers(2, 64),
    st.floats(0, 10),
    st.integers(1, 16),
)
ALLOWED = st.sampled_from([(), ("onebit",), ("onebit", "int8")])


def expected_s(seen: StepFigures, codecs: Sequence[Codec]) -> float:
    """The seconds of a step whose layers travel by these, written down once more."""
    busy_s, wire_s = seen.compute_s, 0.0
    for layer, codec in zip(seen.layers, codecs, strict=True):
        representation = representation_of(codec)
        link_bytes = representation.link_bytes(layer, seen.links)
        wire_s += link_bytes / seen.links.bytes_per_s
        busy_s += (representation.work_s(layer, seen.links, seen.work) + link_bytes * seen.work.byte) / seen.cores
    return step_s(busy_s, wire_s)


def all_choices(codec: Codec, seen: StepFigures) -> Iterator[Sequence[Codec]]:
    return product(*(fitting(codec, layer) for layer in seen.layers))


@settings(max_examples=30)
@given(seen=SEEN, allow=ALLOWED)
def test_no_single_choice_for_all_layers_is_expected_to_be_quicker(seen, allow):
    codec = made("auto", allow=allow)
    best, *_ = tables(codec, seen)
    for leaf in codec.leaves():
        alike = [leaf if leaf.fits(layer) else codec.leaves()[0] for layer in seen.layers]
        assert best.seconds <= expected_s(seen, alike) / CLEARLY * (1 + 1e-9)


@settings(max_examples=30)
@given(seen=SEEN, allow=ALLOWED)
# the layer that comes first gains little, and what the other gains with it is less than what it gains alone
@example(
    seen=figures(13805346882.0, any_layer(0, 289, 1, None), any_layer(1, 125, 1, None), ranks=5, cores=7),
    allow=("onebit",),
)
def test_of_all_choices_of_ways_for_layers_it_is_the_quickest_or_close_to_it(seen, allow):
    codec = made("auto", allow=allow)
    best, *_ = tables(codec, seen)
    least_s = min(expected_s(seen, codecs) for codecs in all_choices(codec, seen))
    assert least_s * (1 - 1e-9) <= best.seconds <= 1.1 * least_s


@settings(max_examples=30)
@given(seen=SEEN, allow=ALLOWED)
def test_where_sending_as_it_is_takes_much_longer_no_step_is_sent_so_not_even_to_compare(seen, allow):
    codec = made("auto", allow=allow)
    worth = worth_comparing(tables(codec, seen), seen.layers)
    exact_s = expected_s(seen, [codec.leaves()[0]] * len(seen.layers))
    comparison = Comparison([one.representations for one in worth], [[]] * len(worth), [one.seconds for one in worth])
    used = worth[:1]
    while len(worth) > 1 and not comparison.over:
        comparison.add(used[-1].seconds)  # each takes what it is expected to take
        if comparison.asks:
            comparison.take(comparison.verdict())
        used.append(worth[comparison.now])
    for one in used:
        if all(decision.representation == "exact" for decision in one.decisions):
            assert exact_s <= CLOSE * worth[0].seconds / CLEARLY * (1 + 1e-9)


@settings(max_examples=30)
@given(seen=SEEN)
def test_loss_is_taken_only_where_it_makes_a_step_clearly_quicker(seen):
    exact, lossy = tables(made("auto"), seen)[0], tables(made("auto", allow=("onebit",)), seen)[0]
    assert exact.lossless
    assert lossy.lossless or lossy.seconds < CLEARLY * exact.seconds


@settings(max_examples=30)
@given(seen=SEEN, allow=ALLOWED)
def test_a_further_representation_must_save_a_hundredth_of_a_step(seen, allow):
    ranked = tables(made("auto", allow=allow), seen)
    kinds = [len({one.representation for one in table.decisions}) for table in ranked]
    for table, others in zip(ranked, kinds, strict=True):
        if table.lossless == ranked[0].lossless and others < kinds[0]:
            assert ranked[0].seconds < table.seconds * (1 + 0.01 * (others - 1)) / (1 + 0.01 * (kinds[0] - 1)) + 1e-12


def test_on_cores_that_compute_already_a_codec_must_save_more_wire():
    kernels = [replace(KERNEL, names=(f"conv{number}.weight",)) for number in range(8)]

    def by(bytes_per_s: float, cores: int) -> set[str]:
        seen = figures(bytes_per_s, *kernels, compute_s=0.5, cores=cores)
        return {one.representation for one in tables(made("auto", allow=("onebit",)), seen)[0].decisions}

    assert by(SLOW, 1) == by(SLOW, 16) == {"onebit"}
    assert by(1e9, 1) == {"exact"}


def test_those_that_are_compared_differ_in_much_of_the_network():
    def table(seconds: float, *chosen_ways: str) -> Table:
        decided = [
            Decision((str(number),), representation, 0.0, 0.0, "") for number, representation in enumerate(chosen_ways)
        ]
        return Table(decided, seconds, lossless=False)

    found = [SQUARE, KERNEL, BIAS]
    best, alike, other, far = (
        table(1.0, "onebit", "onebit", "exact"),
        table(1.01, "onebit", "exact", "exact"),
        table(1.2, "int8", "onebit", "exact"),
        table(1.3, "exact", "exact", "exact"),
    )
    assert worth_comparing([best, alike, other, far], found) == [best, other]
    assert worth_comparing([best, alike], found) == [best]


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
        return {name: representation.name for name, representation in pushed(codec, Net(), samples, servers).items()}

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
