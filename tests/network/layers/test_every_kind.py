"""Every kind of layer gives the shapes that it says, for settings and inputs of many kinds, or refuses them."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.errors import SettingError
from volary.network.layers import ROOM

PIXELS, SEQUENCE, VALUES = (4, 9, 8), (6, 8), (12,)
# kind -> settings and the shapes of its inputs
EXAMPLES = {
    "activation": [({"function": name}, [PIXELS]) for name in ("relu", "leaky_relu", "elu", "softplus", "abs")],
    "arg_max": [({}, [PIXELS]), ({"top": 3, "values": True}, [VALUES]), ({"axis": 2, "top": 2}, [PIXELS])],
    "attention": [
        ({"heads": 2, "causal": True}, [SEQUENCE]),
        ({"heads": 4}, [SEQUENCE, (3, 5)]),
        ({"bias": False}, [SEQUENCE, (3, 5), (3, 7)]),
    ],
    "batch_norm": [
        ({}, [VALUES]),
        ({}, [PIXELS]),
        ({"statistics": "running"}, [SEQUENCE]),
        ({"affine": False}, [PIXELS]),
    ],
    "bias": [({"axis": 2, "axes": -1}, [PIXELS]), ({}, [PIXELS, (4, 9)]), ({"axis": 0}, [PIXELS, (4,)])],
    "clip": [({"low": -0.5, "high": 0.5}, [PIXELS])],
    "concat": [({}, [PIXELS, (2, 9, 8)]), ({"axis": -1}, [PIXELS, (4, 9, 1)]), ({}, [VALUES])],
    "conv": [
        ({"channels": 6, "kernel": 3, "padding": "same"}, [PIXELS]),
        ({"channels": 6, "kernel": [3, 2], "stride": [1, 2], "groups": 2}, [PIXELS]),
        ({"channels": 3, "kernel": 3, "dilation": 2, "bias": False}, [SEQUENCE]),
        ({"channels": 3, "kernel": 2}, [(2, 4, 5, 6)]),
    ],
    "crop": [({"offset": 2}, [PIXELS, (4, 3, 5)]), ({"axis": 3, "offset": 1}, [PIXELS, (1, 1, 7)])],
    "deconv": [
        ({"channels": 6, "kernel": 4, "stride": 2, "padding": 1}, [PIXELS]),
        ({"channels": 4, "kernel": 3}, [SEQUENCE]),
    ],
    "dropout": [({"rate": 0.3}, [PIXELS])],
    "elementwise": [
        ({"operation": "sum"}, [PIXELS] * 3),
        ({"coefficients": [1, -1]}, [VALUES] * 2),
        ({"operation": "product"}, [VALUES] * 2),
        ({"operation": "maximum"}, [VALUES] * 2),
    ],
    "embedding": [({"symbols": 5, "width": 3}, [(7,)])],
    "exp": [({"base": 2, "scale": 0.5, "shift": 1}, [PIXELS])],
    "flatten": [({}, [PIXELS]), ({"axis": 2}, [PIXELS]), ({"end": 2}, [PIXELS])],
    "group_norm": [({"groups": 2}, [PIXELS])],
    "gru": [({"hidden": 3}, [SEQUENCE]), ({"hidden": 3, "output": "last", "both_ways": True}, [SEQUENCE])],
    "layer_norm": [({}, [SEQUENCE]), ({"bias": False}, [PIXELS])],
    "linear": [
        ({"outputs": 7}, [PIXELS]),
        ({"outputs": 7, "axis": -1}, [SEQUENCE]),
        ({"outputs": 7, "axis": 2}, [PIXELS]),
    ],
    "log": [({"base": 10, "scale": 0.5, "shift": 1}, [PIXELS])],
    "lrn": [({}, [PIXELS]), ({"region": "within", "size": 3}, [PIXELS])],
    "lstm": [({"hidden": 3, "layers": 2, "dropout": 0.1}, [SEQUENCE]), ({"hidden": 3, "output": "last"}, [SEQUENCE])],
    "mean_variance": [({"across": True}, [VALUES]), ({"variance": False}, [PIXELS])],
    "permute": [({"order": [2, 3, 1]}, [PIXELS]), ({"order": [2, 1]}, [SEQUENCE])],
    "pool": [
        ({"size": 2}, [PIXELS]),
        ({"size": 3, "stride": 2, "round": "ceil", "kind": "average"}, [PIXELS]),
        ({"size": "global", "kind": "average"}, [PIXELS]),
        ({"size": [3, 2], "padding": [1, 0]}, [PIXELS]),
        ({"size": 2}, [SEQUENCE]),
    ],
    "positions": [({}, [SEQUENCE]), ({"most_positions": 20}, [SEQUENCE])],
    "pyramid": [({"levels": 2}, [PIXELS]), ({"levels": 1, "kind": "average"}, [(2, 3, 1)])],
    "power": [({"power": 2, "scale": 0.5, "shift": 1}, [PIXELS])],
    "prelu": [({}, [PIXELS]), ({"shared": True}, [VALUES])],
    "reduce": [
        ({}, [PIXELS]),
        ({"operation": "maximum", "axis": 2}, [PIXELS]),
        ({"operation": "sum", "end": 1}, [PIXELS]),
        ({"operation": "sum_of_squares", "factor": 2}, [PIXELS]),
    ],
    "reshape": [({"shape": [0, -1]}, [PIXELS]), ({"shape": [3, 4]}, [VALUES]), ({"shape": [288]}, [PIXELS])],
    "scale": [
        ({"bias": True}, [PIXELS]),
        ({"axis": 2, "axes": -1}, [PIXELS]),
        ({"axis": 0}, [PIXELS, (4,)]),
        ({"axis": 1, "bias": True}, [PIXELS, (4, 9)]),
        ({"axis": 2}, [PIXELS, (9, 8)]),
    ],
    "shuffle": [({"groups": 2}, [PIXELS]), ({"groups": 3}, [(6, 5)])],
    "shortcut": [({"channels": 4}, [PIXELS]), ({"channels": 8, "stride": 2}, [PIXELS])],
    "slice": [({"parts": 2}, [PIXELS]), ({"at": [1, 4], "axis": 2}, [PIXELS])],
    "softmax": [({}, [VALUES]), ({"axis": -1}, [SEQUENCE])],
    "tile": [({"copies": 3, "axis": 2}, [PIXELS])],
    "upsample": [({"factor": 3}, [PIXELS]), ({"kind": "bilinear"}, [PIXELS])],
}

WITHOUT_GRADIENT = ("arg_max", "threshold")


def made(kind, settings):
    return ROOM.load(kind)(**settings)


def run(kind, shapes):
    inputs = [
        torch.randint(5, (2, *shape)) if type(kind).__name__ == "EmbeddingLayer" else torch.rand(2, *shape)
        for shape in shapes
    ]
    found = kind.build(tuple(shapes))(*kind.prepared(*inputs))
    return found if isinstance(found, tuple) else (found,)


def examples_of(name):
    """A kind without an example is tried with its defaults on each shape that it takes; it takes one at least."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    found = []
    for shape in (PIXELS, SEQUENCE, VALUES):
        try:
            made(name, {}).shapes((shape,))
        except SettingError:
            continue
        found.append(({}, [shape]))
    assert found, f"{name} takes none of them with its defaults: add an example"
    return found


@pytest.mark.parametrize("name", ROOM.names())
def test_a_kind_gives_the_shapes_that_it_says(name):
    for chosen, shapes in examples_of(name):
        kind = made(name, chosen)
        found = run(kind, shapes)
        assert tuple(tuple(one.shape[1:]) for one in found) == kind.shapes(tuple(shapes)), (chosen, shapes)
        assert len(found) == kind.gives


@pytest.mark.parametrize("name", ROOM.names())
def test_gradients_reach_every_parameter(name):
    for chosen, shapes in examples_of(name):
        kind = made(name, chosen)
        module = kind.build(tuple(shapes))
        kind.fill(module)
        ints = name == "embedding"
        inputs = [torch.randint(5, (2, *s)) if ints else torch.rand(2, *s, requires_grad=True) for s in shapes]
        found = module(*kind.prepared(*inputs))
        if name in WITHOUT_GRADIENT and not chosen.get("values"):
            assert not any(one.requires_grad for one in (found if isinstance(found, tuple) else (found,)))
            continue
        sum(one.square().sum() for one in (found if isinstance(found, tuple) else (found,))).backward()
        assert [n for n, p in module.named_parameters() if p.grad is None] == []


sizes = st.integers(1, 12)
windows = st.fixed_dictionaries(
    {
        "kernel": st.integers(1, 5),
        "stride": st.integers(1, 4),
        "padding": st.integers(0, 3),
        "dilation": st.integers(1, 3),
    }
)


@settings(max_examples=150, deadline=None)
@given(shape=st.tuples(sizes, sizes), window=windows, name=st.sampled_from(["conv", "deconv"]))
def test_convolutions_are_inferred_or_refused_as_torch_does(shape, window, name):
    check_against_torch(made(name, {"channels": 2, **window}), (3, *shape))


@settings(max_examples=300, deadline=None)
@given(
    shape=st.tuples(sizes, sizes),
    size=st.integers(1, 5),
    stride=st.integers(1, 5),
    padding=st.integers(0, 2),
    kind=st.sampled_from(["max", "average"]),
    rounding=st.sampled_from(["floor", "ceil"]),
)
def test_pooling_is_inferred_or_refused_as_torch_does(shape, size, stride, padding, kind, rounding):
    settings = {"size": size, "stride": stride, "padding": padding, "kind": kind, "round": rounding}
    check_against_torch(made("pool", settings), (3, *shape))


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    wanted=st.lists(st.integers(-1, 6), min_size=1, max_size=4),
)
def test_reshapes_are_inferred_or_refused_as_torch_does(shape, wanted):
    try:
        kind = made("reshape", {"shape": wanted})
    except SettingError:
        return
    check_against_torch(kind, tuple(shape))


def check_against_torch(kind, shape):
    """The inferred shape is what torch gives; what is refused torch refuses, too, or has no value of."""
    try:
        inferred = kind.shapes((shape,))
    except SettingError:
        with suppress(RuntimeError, IndexError):
            assert kind.build((shape,))(torch.zeros(1, *shape)).numel() == 0
        return
    assert tuple(kind.build((shape,))(torch.zeros(1, *shape)).shape[1:]) == inferred[0]
