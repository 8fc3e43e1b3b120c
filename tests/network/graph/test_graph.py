"""A graph of named layers: its order, versions of edges, what runs for what is fetched, and its module's names."""

import pytest
import torch

from volary.errors import SettingError
from volary.network.graph.form import Graph, NamedLayer
from volary.network.graph.module import GraphModule
from volary.network.graph.shapes import infer
from volary.network.graph.wiring import wire
from volary.network.layers import ROOM


def layer(name, kind, *inputs, outputs=None, phase=None, shares=None, place="", **settings):
    alias, fixed = ROOM.unfolded(kind)
    made = ROOM.load(alias)(**fixed, **settings)
    return NamedLayer(
        name=name,
        kind=made,
        inputs=inputs,
        outputs=(name,) if outputs is None else outputs,
        phase=phase,
        shares=shares or {},
        place=place,
    )


def linear(name, source, outputs, edge=None, shares=None, phase=None):
    kind = ROOM.load("linear")(outputs=outputs)
    made = edge or name
    return NamedLayer(name=name, kind=kind, inputs=(source,), outputs=(made,), shares=shares or {}, phase=phase)


def graph(*layers, outputs, inputs=("input",)):
    return Graph(layers=layers, inputs=inputs, outputs=outputs)


def module(*layers, outputs, shape=(4,)):
    return GraphModule(graph(*layers, outputs=outputs), {"input": shape})


def calls(made):
    """The names of the layers that run from now on, in their order."""
    found = []
    for name, part in made.named_modules():
        if name and not list(part.children()):
            part.register_forward_hook(lambda *_, name=name: found.append(name))
    return found


def test_layers_written_in_any_order_run_behind_what_they_read():
    made = module(
        layer("last", "sum", "a", "b"),
        layer("b", "relu", "a"),
        layer("a", "tanh", "input"),
        outputs=("last",),
    )
    ran = calls(made)
    x = torch.randn(2, 4)
    torch.testing.assert_close(made(x), x.tanh() + x.tanh().relu(), rtol=0, atol=0)
    assert ran == ["a", "b", "last"]


def test_a_layer_in_place_makes_a_version_that_layers_before_it_do_not_read():
    made = module(
        linear("ip", "input", 4, "x"),
        layer("before", "tanh", "x"),
        layer("relu", "relu", "x", outputs=("x",)),
        layer("after", "abs", "x"),
        layer("sum", "sum", "before", "after"),
        outputs=("sum", "x"),
    )
    x = torch.randn(8, 4)
    raw = made.get_submodule("ip")(x)
    total, fetched = made(x)
    torch.testing.assert_close(total, raw.tanh() + raw.relu(), rtol=0, atol=0)
    torch.testing.assert_close(fetched, raw.relu(), rtol=0, atol=0)


def test_what_is_not_needed_for_a_fetched_edge_does_not_run():
    made = module(
        linear("a", "input", 3),
        linear("b", "a", 5),
        linear("side", "a", 2),
        linear("c", "b", 6),
        outputs=("c",),
    ).eval()
    ran = calls(made)
    x = torch.randn(2, 4)
    found = made.run({"input": x}, ["b"])
    assert ran == ["a", "b"]
    assert found["b"].shape == (2, 5)
    ran.clear()
    made.run({"input": x}, ["side", "a"])
    assert ran == ["a", "side"]
    ran.clear()
    made(x)
    assert ran == ["a", "b", "c"]


def test_an_edge_that_is_fed_needs_nothing_before_it():
    made = module(linear("a", "input", 3), linear("b", "a", 5), outputs=("b",))
    ran = calls(made)
    fed = torch.randn(2, 3)
    found = made.run({"a": fed}, ["b"])["b"]
    assert ran == ["b"]
    torch.testing.assert_close(found, made.get_submodule("b")(fed), rtol=0, atol=0)


def test_an_edge_that_is_none_and_an_input_that_is_not_fed_are_refused():
    made = module(linear("conv", "input", 3), outputs=("conv",))
    with pytest.raises(SettingError, match="unknown name 'conf'; did you mean 'conv'"):
        made.run({"input": torch.zeros(1, 4)}, ["conf"])
    with pytest.raises(SettingError, match="edge 'input' is an input of the network; feed it"):
        made.run({}, ["conv"])


def test_layers_of_a_phase_run_in_it_alone_and_their_outputs_are_left_out_in_the_other():
    made = module(
        linear("trunk", "input", 3),
        linear("head", "trunk", 2, phase="train"),
        linear("answer", "trunk", 2),
        outputs=("answer", "head"),
    )
    x = torch.randn(2, 4)
    assert len(made(x)) == 2
    made.eval()
    ran = calls(made)
    assert made(x).shape == (2, 2)
    assert ran == ["trunk", "answer"]


def test_parameters_are_named_by_path_and_those_of_one_name_are_one():
    made = module(
        linear("tower.first", "input", 4, shares={"weight": "w"}),
        linear("tower.second", "tower.first", 4, shares={"weight": "w"}),
        outputs=("tower.second",),
    )
    assert [name for name, _ in made.named_parameters()] == [
        "tower.first.weight",
        "tower.first.bias",
        "tower.second.bias",
    ]
    assert made.get_submodule("tower.second").weight is made.get_submodule("tower.first").weight


def test_two_layers_of_one_name_in_two_phases_have_the_same_parameters_and_statistics():
    made = module(
        layer("norm", "batch_norm", "input", phase="train"),
        layer("norm", "batch_norm", "input", phase="evaluate", statistics="running"),
        outputs=("norm",),
    )
    made(torch.randn(16, 4) * 3 + 1)
    assert made.get_submodule("norm").running_mean.abs().sum() > 0
    assert made.get_submodule("norm_evaluate").weight is made.get_submodule("norm").weight
    x = torch.randn(3, 4)
    made.eval()
    torch.testing.assert_close(made(x), made.get_submodule("norm")(x))


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([layer("a", "relu", "input"), layer("a", "tanh", "input")], "layer 'a': the name is given twice"),
        ([layer("a", "relu", "inputs")], "layer 'a': no layer makes the edge 'inputs'; did you mean 'input'?"),
        (
            [layer("a", "relu", "input"), layer("b", "tanh", "input", outputs=("a",))],
            "layer 'b': makes the edge 'a', which layer 'a' makes too",
        ),
        (
            [layer("a", "sum", "input", "b"), layer("b", "relu", "a")],
            "layer 'b': reads what is made of its own output: b -> a -> b",
        ),
        ([layer("a", "relu", "input", "input")], "layer 'a': has 2 inputs; accepted: 1"),
        ([layer("a", "crop", "input")], "layer 'a': has 1 inputs; accepted: 2"),
    ],
)
def test_what_is_no_graph_is_refused_by_the_layer(layers, sentence):
    with pytest.raises(SettingError) as refused:
        wire(graph(*layers, outputs=(layers[-1].outputs[0],)), "train")
    assert sentence in str(refused.value)


def test_a_shape_that_does_not_fit_is_refused_with_the_layer_its_line_and_the_shapes():
    both = graph(linear("a", "input", 3), layer("s", "sum", "a", "input", place="net.yaml:7:5"), outputs=("s",))
    with pytest.raises(
        SettingError, match=r"net.yaml:7:5: layer 's': takes equal shapes \(given a \(3,\), input \(4,\)"
    ):
        infer(wire(both, "train"), {"input": (4,)})


def test_a_name_that_modules_have_for_something_else_is_refused():
    with pytest.raises(SettingError, match="layer 'train': 'train' is a name that torch's modules have"):
        module(layer("train", "relu", "input"), outputs=("train",))
