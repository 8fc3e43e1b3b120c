"""Networks written as lists: equal to the zoo's bit for bit, blocks and repeats, edges by name, and what is refused."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from network._listed import ALEXNET, CIFAR10_QUICK, LENET, RESNET18, XAVIER
from volary.errors import SettingError
from volary.network import build
from volary.network.builder import Builder
from volary.network.zoo import ROOM
from volary.network.zoo.layers import LayerNetwork
from volary.partition.pipelining.chain import chain_of
from volary.session import Session
from volary.session.reading.problems import SessionError

SIZES = {"lenet": (1, 28, 28), "cifar10_quick": (3, 32, 32), "alexnet": (3, 67, 67), "resnet18": (3, 16, 16)}
LISTS = {"lenet": LENET, "cifar10_quick": CIFAR10_QUICK, "alexnet": ALEXNET, "resnet18": RESNET18}
DATA = {"source": "digits"}


def steps(network, shape, count):
    """The parameters at first, the output in evaluation mode, losses of some steps, and the parameters after them."""
    torch.manual_seed(7)
    module = build(network, shape, 10)
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(4, *shape, generator=generator), torch.arange(4)
    found = [parameter.detach().clone() for parameter in module.parameters()]
    module.eval()
    found.append(module(inputs).detach())
    module.train()
    rule = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    for _ in range(count):
        rule.zero_grad()
        loss = cross_entropy(module(inputs), targets)
        loss.backward()
        rule.step()
        found.append(loss.detach())
    return found + [one.detach() for one in (*module.parameters(), *module.buffers())]


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_equals_the_zoo_s_network_bit_for_bit(name):
    plugin, settings = ROOM.unfolded(name)
    counted = 1 if name == "alexnet" else 3
    of_zoo = steps(ROOM.load(plugin)(**settings), SIZES[name], counted)
    of_list = steps(LayerNetwork(layers=LISTS[name]), SIZES[name], counted)
    assert len(of_list) == len(of_zoo)
    for one, other in zip(of_list, of_zoo, strict=True):
        assert torch.equal(one, other)


def test_parameters_are_named_by_path():
    module = build(LayerNetwork(layers=LENET), (1, 28, 28), 10)
    assert [name for name, _ in module.named_parameters()] == [
        f"{layer}.{which}" for layer in ("conv1", "conv2", "ip1", "ip2") for which in ("weight", "bias")
    ]
    names = [name for name, _ in build(LayerNetwork(layers=RESNET18), (3, 16, 16), 10).named_parameters()]
    assert "repeat1.1.residual1.conv2.weight" in names
    assert "residual1.shortcut1.0.weight" in names


def test_lists_are_chains_that_a_pipeline_cuts_and_their_linear_layers_torch_s_own():
    module = build(LayerNetwork(layers=LENET), (1, 28, 28), 10)
    assert type(module.get_submodule("ip1")) is torch.nn.Linear  # so it travels as factors, and is cut
    chain = chain_of(module)
    assert {"conv1", "pool1", "conv2", "pool2", "ip1", "relu1", "ip2"} <= {link.name for link in chain.links}
    x, middle = torch.randn(2, 1, 28, 28), chain.place("ip1")
    assert torch.equal(chain.part(middle, len(chain.links))(chain.part(0, middle)(x)), module(x))
    links = chain_of(build(LayerNetwork(layers=RESNET18), (3, 16, 16), 10)).links
    assert len([link for link in links if len(link.layers) > 4]) == 8, "each residual block is a link"


PAIR = {
    "settings": {"width": None, "second": 3},
    "inputs": ["left", "right"],
    "outputs": ["both", "far"],
    "layers": [
        {"linear": {"name": "near", "outputs": "$width", "inputs": "left"}},
        {"linear": {"name": "far", "outputs": "$second", "inputs": "right"}},
        {"concat": {"name": "both", "inputs": ["near", "far"]}},
    ],
}


def test_a_block_with_several_inputs_and_outputs_is_defined_once_and_used_by_name():
    network = LayerNetwork(
        blocks={"pair": PAIR},
        layers=[
            {"tanh": {"name": "a"}},
            {"relu": {"name": "b", "inputs": "input"}},
            {"pair": {"name": "one", "width": 2, "inputs": ["a", "b"]}},
            {"pair": {"name": "two", "width": 4, "second": 1, "inputs": ["one.far", "one.both"]}},
            {"concat": {"inputs": ["two.both", "one.far"]}},
        ],
    )
    module = build(network, (6,), 10)
    x = torch.randn(3, 6)
    parts = {name: module.get_submodule(name) for name in ("one.near", "one.far", "two.near", "two.far")}
    far = parts["one.far"](x.relu())
    both = torch.cat([parts["one.near"](x.tanh()), far], 1)
    two = torch.cat([parts["two.near"](far), parts["two.far"](both)], 1)
    assert torch.equal(module(x), torch.cat([two, far], 1))
    assert torch.equal(module.run({"input": x}, ["one.both"])["one.both"], both)


def test_a_repeat_repeats_and_its_layers_see_what_is_around_it():
    block = [{"linear": {"outputs": 6}}, {"sum": {"inputs": ["linear1", "first"]}}]
    network = LayerNetwork(
        layers=[{"relu": {"name": "first"}}, {"repeat": {"name": "trunk", "times": 3, "block": block}}]
    )
    module = build(network, (6,), 10)
    x = torch.randn(2, 6)
    expected = x.relu()
    for turn in range(3):
        expected = module.get_submodule(f"trunk.{turn}.linear1")(expected) + x.relu()
    assert torch.equal(module(x), expected)
    assert torch.equal(module.run({"input": x}, ["trunk"])["trunk"], expected)


def test_layers_may_read_edges_that_are_made_further_down():
    layers = [
        {"sum": {"name": "end", "inputs": ["x", "y"]}},
        {"tanh": {"name": "x", "inputs": "in"}},
        {"abs": {"name": "y", "inputs": "x"}},
    ]
    module = build(LayerNetwork(layers=layers, inputs=("in",), output="end"), (5,), 10)
    x = torch.randn(2, 5)
    assert torch.equal(module(x), x.tanh() + x.tanh().abs())


def test_outputs_of_training_alone_are_auxiliary_answers():
    layers = [
        {"linear": {"name": "trunk", "outputs": 8}},
        {"linear": {"name": "head", "outputs": "classes", "phase": "train"}},
    ]
    layers.append({"linear": {"name": "answer", "outputs": "classes", "inputs": "trunk"}})
    module = build(LayerNetwork(layers=layers, output=("answer", "head")), (5,), 3)
    assert [one.shape for one in module(torch.randn(2, 5))] == [(2, 3), (2, 3)]
    assert module.eval()(torch.randn(2, 5)).shape == (2, 3)


def test_a_block_of_a_phase_runs_in_it_alone():
    head = {"layers": [{"linear": {"outputs": 4}}, "relu", {"linear": {"outputs": "classes"}}]}
    layers = [
        {"tanh": {"name": "trunk"}},
        {"head": {"phase": "train"}},
        {"linear": {"name": "answer", "outputs": 3, "inputs": "trunk"}},
    ]
    module = build(LayerNetwork(layers=layers, blocks={"head": head}, output=("answer", "head1")), (5,), 3)
    assert len(module(torch.randn(2, 5))) == 2
    ran = []
    module.get_submodule("head1.relu1").register_forward_hook(lambda *_: ran.append("head"))
    assert module.eval()(torch.randn(2, 5)).shape == (2, 3)
    assert not ran


def test_a_layer_and_a_block_have_names_of_their_own():
    for layers in (["relu", {"tanh": {"name": "relu1.inner"}}], [{"tanh": {"name": "a.b"}}, {"relu": {"name": "a"}}]):
        with pytest.raises(
            SettingError, match=r"is the name of a layer, and so of no block|is a name that a block has"
        ):
            build(LayerNetwork(layers=layers), (5,), 3)


def test_shared_parameters_are_one():
    layers = [
        {"linear": {"outputs": 5, "share": {"weight": "w"}}},
        {"linear": {"outputs": 5, "share": {"weight": "w"}}},
    ]
    module = build(LayerNetwork(layers=layers), (5,), 3)
    assert len(list(module.parameters())) == 3


GATE = """
from torch import nn

class Gate(nn.Module):
    def __init__(self, input_shape, start=0.5):
        super().__init__()
        self.way = nn.Linear(input_shape[0], input_shape[0])
        self.start = start

    def forward(self, x):
        return x * (self.way(x) + self.start).sigmoid()
"""


def test_a_layer_of_one_s_own_is_a_class_by_reference(tmp_path, monkeypatch):
    (tmp_path / "gate.py").write_text(GATE)
    (tmp_path / "session.yaml").write_text(
        "network:\n  layers:\n    - linear: {outputs: 6}\n    - gate.py:Gate: {name: gate, start: 0.25}\n"
        "    - linear: {outputs: classes}\ndata: {source: digits}\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    session = Session.read(tmp_path / "session.yaml")
    session.check()
    (elsewhere / "resolved.yaml").write_text(session.to_yaml())
    again = Session.read(elsewhere / "resolved.yaml")
    assert again == session
    module = build(again.network, (1, 8, 8), 10)
    assert module.get_submodule("gate").start == 0.25
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    (tmp_path / "gate.py").unlink()
    with pytest.raises(SessionError, match=r"network: .*gate.py: no such file"):
        session.check()


@pytest.mark.parametrize("layers", [LENET, RESNET18])
def test_the_resolved_session_reads_back_to_the_same_network(layers, tmp_path):
    session = Session(network={"layers": layers}, data=DATA)
    (tmp_path / "session.yaml").write_text(session.to_yaml())
    again = Session.read(tmp_path / "session.yaml")
    assert again == session
    assert again.network.graph == session.network.graph


@pytest.mark.parametrize(
    ("written", "line", "sentence"),
    [
        ("- pol: {size: 2}", 4, "unknown layer 'pol'; did you mean 'pool'?"),
        ("- conv: {chanels: 3, kernel: 2}", 4, "conv.chanels: unknown; did you mean 'channels'?"),
        ("- conv: {channels: 3, kernel: 0}", 4, "conv.kernel: is 0; accepted: whole numbers from 1"),
        ("- relu: {name: a}\n    - tanh: {name: a}", 5, "the name 'a' is given twice"),
        ("- relu: {name: a}\n    - sum: {inputs: [a, inptu]}", 5, "no layer makes the edge 'inptu'; did you mean"),
        ("- relu: {edges: x}\n    - abs: {inputs: input, edges: x}", 5, "makes the edge 'x', which layer 'relu1'"),
        ("- sum: {name: a, inputs: [input, b]}\n    - relu: {name: b}", 5, "reads what is made of its own output"),
        ("- repeat: {times: 0, block: relu}", 4, "is 0; accepted: a whole number from 1"),
        ("- repeat: {times: 2}", 4, "accepted: a layer or a block, or a list of them"),
        ("- pair: {width: 2}", 4, "block 'pair' takes 2 inputs (left, right); it is given 1"),
        ("- pair: {inputs: [input, input]}", 4, "width: is missing; accepted: a value"),
        ("- pair: {width: 2, heigth: 3, inputs: [input, input]}", 4, "unknown; Known: width"),
        ("- round: {}", 4, "block 'round' is made of itself"),
        ("- residual: {channels: 2, share: {weight: w}}", 4, "share: is for a layer; accepted: `share` of layers"),
        ("- relu: {phase: test}", 4, "is 'test'; accepted: train, evaluate"),
        ("- 5", 4, "is no layer; accepted: a kind of layer and its settings"),
        ("- relu: {function: tanh}", 4, "is 'relu' by the name 'relu'; accepted: another function"),
        ("- crop: {inputs: input}", 4, "layer 'crop1': has 1 inputs; accepted: 2"),
    ],
)  # fmt: skip
def test_what_is_no_network_is_refused_by_line(written, line, sentence):
    file = Path("session.yaml")
    blocks = (
        "  blocks:\n    pair: {settings: {width: null}, inputs: [left, right], layers: [sum]}\n"
        "    round: {layers: [relu, round]}\n"
    )
    file.write_text(f"data: {{source: digits}}\nnetwork:\n  layers:\n    {written}\n{blocks}")
    with pytest.raises(SessionError) as refused:
        Session.read(file)
    lines = str(refused.value).splitlines()
    assert any(sentence in line for line in lines), lines
    assert lines[0].startswith("session.yaml:7" if "round" in written else f"session.yaml:{line}:"), lines


def test_all_mistakes_are_told_at_once():
    with pytest.raises(SessionError) as refused:
        Session(
            network={"layers": [{"pol": {}}, {"conv": {"channels": 0, "kernel": 1}}, {"sum": {"inputs": "x"}}]},
            data=DATA,
        )
    assert len(refused.value.problems) == 3


def read(layers, tmp_path):
    (tmp_path / "session.yaml").write_text(f"data: {{source: digits}}\nnetwork:\n  layers:\n{layers}")
    return Session.read(tmp_path / "session.yaml").network


def test_shapes_that_do_not_fit_are_named_by_layer_and_line(tmp_path):
    network = read("    - conv: {channels: 2, kernel: 3}\n    - sum: {name: both, inputs: [conv1, input]}\n", tmp_path)
    with pytest.raises(SettingError) as refused:
        build(network, (1, 8, 8), 10)
    expected = "session.yaml:5:12: layer 'both': takes equal shapes (given conv1 (2, 6, 6), input (1, 8, 8))"
    assert str(refused.value).endswith(expected)


def test_classes_that_the_data_do_not_have_are_refused_by_layer_and_line(tmp_path):
    network = read("    - linear: {name: fc, outputs: classes}\n", tmp_path)
    with pytest.raises(SettingError, match="layer 'fc': outputs is 'classes', and the data does not say") as refused:
        build(network, (8,), None)
    assert "session.yaml:4:15: " in str(refused.value)
    assert build(read("    - linear: {outputs: 3}\n", tmp_path), (8,), None)(torch.zeros(1, 8)).shape == (1, 3)


def test_python_s_builder_makes_the_same_form():
    net = Builder()
    net.add("conv", name="conv1", channels=20, kernel=5, **XAVIER)
    net.add("pool", name="pool1", size=2)
    net.add("conv", name="conv2", channels=50, kernel=5, **XAVIER)
    net.add("pool", size=2)
    net.add("linear", name="ip1", outputs=500, **XAVIER)
    net.add("relu")
    net.add("linear", name="ip2", outputs="classes", **XAVIER)
    assert net.network().graph == LayerNetwork(layers=LENET).graph


def test_python_s_builder_connects_by_the_names_that_it_gives():
    net = Builder("x")
    first = net.add("relu", "x")
    cut = net.add("slice", first, parts=2)
    net.add("concat", f"{cut}.1", f"{cut}.0")
    module = build(net.network(), (4,), 10)
    x = torch.randn(2, 4)
    assert torch.equal(module(x), x.relu().roll(2, 1))
