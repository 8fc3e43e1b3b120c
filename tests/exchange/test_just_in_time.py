"""Whoever reads a parameter waits for it, and for no other."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from volary.exchange.gradients.bucket import ParameterGate
from volary.exchange.gradients.just_in_time import JustInTime


class Reader(nn.Module):
    """Parameters of its own and of children, read in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)])
        self.frozen = nn.Linear(2, 2).requires_grad_(requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.two(self.one(inputs)) * self.scale


class LoopCheckpoints(nn.Module):
    """Keeps parameters of other modules in lists."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
        self.kept = {"weight": self.one.weight}
        self.pair = (self.two.weight, "and something else")

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.kept["weight"] @ self.pair[0]


class Watched:
    """Gates of a network's trained parameters, all of them closed; who was waited for, in order."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.gates = {id(p): ParameterGate(name) for name, p in module.named_parameters() if p.requires_grad}
        self.waited: list[str] = []
        self.just_in_time = JustInTime(module, self.gates, self.wait)
        self.shut()

    def shut(self) -> None:
        self.waited.clear()
        for gate in self.gates.values():
            gate.waits = 1

    def wait(self, gate: ParameterGate) -> None:
        self.waited.append(gate.name)
        gate.waits = 0


@pytest.fixture
def watched() -> Watched:
    return Watched(Reader())


def test_reading_a_parameter_waits_for_it_alone_and_once(watched):
    for _ in range(2):
        assert watched.module.one.weight.requires_grad
        assert watched.waited == ["one.weight"]
    assert watched.module.listed[1].requires_grad
    assert watched.module.frozen.weight is not None
    assert watched.module.two.in_features == 2
    assert watched.waited == ["one.weight", "listed.1"]


def test_a_forward_waits_for_each_layer_as_it_comes_to_it(watched):
    watched.module(torch.ones(1, 2))
    assert watched.waited == ["one.weight", "one.bias", "two.weight", "two.bias", "scale"]


EVERYTHING = ["scale", "one.weight", "one.bias", "two.weight", "two.bias", "listed.0", "listed.1"]
READS = {
    "parameters": lambda module: list(module.parameters()),
    "named_parameters": lambda module: dict(module.named_parameters()),
    "state_dict": lambda module: module.state_dict(),
    "to": lambda module: module.to(torch.float64),
    "apply": lambda module: module.apply(lambda part: list(part.parameters(recurse=False))),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "load_state_dict": lambda module: module.load_state_dict(Reader().state_dict()),
    "functional_call": lambda module: torch.func.functional_call(module, {}, (torch.ones(1, 2),)),
}


@pytest.mark.parametrize("way", READS)
def test_every_way_to_read_all_waits_for_all(watched, way):
    READS[way](watched.module)
    assert sorted(watched.waited) == sorted(EVERYTHING), "once each"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("one.weight", lambda module: module.get_parameter("one.weight")),
        ("one.weight", lambda module: getattr(module.one, "weight")),  # noqa: B009
        ("one.weight", lambda module: module.one._parameters["weight"]),
        ("one.weight", lambda module: module.one._parameters.get("weight")),
        ("scale", lambda module: list(module._parameters.values())),
        ("scale", lambda module: list(module._parameters.items())),
    ],
)
def test_a_parameter_read_by_name_is_waited_for_alone(watched, name, read):
    read(watched.module)
    assert watched.waited == [name]


def test_names_alone_wait_for_nobody(watched):
    assert "weight" in watched.module.one._parameters
    assert list(watched.module.one._parameters) == ["weight", "bias"]
    assert len(watched.module.one._parameters) == 2
    assert "weight" in dir(watched.module.one)
    assert watched.waited == []


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_which_keeps_references_waits_before_its_forward(kind):
    watched = Watched(nn.ModuleList([kind(2, 2), nn.Linear(2, 2)]))
    watched.module[0](torch.ones(1, 2))
    assert sorted(watched.waited) == sorted(f"0.{name}" for name, _ in kind(2, 2).named_parameters())


def test_parameters_kept_in_lists_are_waited_for_before_the_forward_of_who_keeps_them():
    watched = Watched(LoopCheckpoints())
    watched.module(torch.ones(1, 2))
    assert watched.waited == ["one.weight", "two.weight"]


def test_attention_which_reads_its_child_s_weight_without_calling_it_waits_for_it():
    watched = Watched(nn.MultiheadAttention(4, 2))
    hidden = torch.ones(3, 1, 4)
    watched.module(hidden, hidden, hidden)
    assert set(watched.waited) == {name for name, _ in watched.module.named_parameters()}


def whole_copy(module: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(module))


@pytest.mark.parametrize("copied", [copy.deepcopy, whole_copy])
@pytest.mark.parametrize("make", [Reader, LoopCheckpoints, lambda: nn.LSTM(2, 2)])
def test_a_copy_of_the_network_is_a_plain_one_that_waits_for_nobody(copied, make):
    watched = Watched(make())
    other: Any = copied(watched.module)
    watched.shut()
    assert not {id(p) for p in other.parameters()} & set(watched.gates)
    for part in other.modules():
        assert type(part._parameters) is dict
    before = [parameter.detach().clone() for parameter in other.parameters()]
    result = other(torch.ones(1, 2))
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert watched.waited == []
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))


def test_removed_it_leaves_the_network_as_it_was():
    watched = Watched(nn.ModuleList([nn.LSTM(2, 2), Reader()]))
    watched.just_in_time.remove()
    watched.module[0](torch.ones(1, 2))
    watched.module[1](torch.ones(1, 2))
    for part in watched.module.modules():
        assert type(part._parameters) is dict
        assert not part._forward_pre_hooks
    assert [name for name, _ in watched.module[1].named_parameters()] == [n for n, _ in Reader().named_parameters()]
    assert watched.waited == []


def within(module: Reader) -> nn.Module:
    module.one = torch.compile(module.one, backend="eager")
    return module


COMPILED = {
    "the network": lambda module: torch.compile(module, backend="eager"),
    "a layer": within,
    "a function that calls it": lambda module: module,
}


@pytest.mark.parametrize("what", COMPILED)
def test_compiled_code_waits_for_what_it_reads_each_time(what):
    torch._dynamo.reset()
    module = COMPILED[what](Reader())
    watched = Watched(module)
    called = torch.compile(lambda inputs: module(inputs), backend="eager") if "function" in what else module
    for _ in range(3):
        watched.shut()
        called(torch.ones(2, 2))
        assert {name.replace("_orig_mod.", "") for name in watched.waited} >= {
            "one.weight", "one.bias", "two.weight", "two.bias", "scale"
        }  # fmt: skip
        assert not any(gate.waits for gate in watched.gates.values() if gate.name in watched.waited)
