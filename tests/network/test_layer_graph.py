"""A network's graph lists its computations layer by layer as it runs; real modules are afterwards as before."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from volary.network import build
from volary.network.layer_graph import layer_graph
from volary.network.zoo.lenet import LeNet


def of(module: nn.Module, inputs: Tensor) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in layer_graph(module, inputs, nullcontext())["layers"]}


def test_lenets_layers_have_their_shapes_and_operations_in_the_order_in_which_they_run() -> None:
    found = layer_graph(build(LeNet(), (1, 28, 28), 10), torch.zeros(2, 1, 28, 28), nullcontext())
    layers = {one["name"]: one for one in found["layers"]}
    assert list(layers) == ["conv1", "pool1", "conv2", "pool2", "flatten", "ip1", "relu1", "ip2"]
    assert [one["inputs"] for one in found["layers"]] == [["input"], *([name] for name in list(layers)[:-1])]
    assert (layers["conv1"]["kind"], layers["conv1"]["shape"]) == ("Conv2d", [20, 24, 24])
    assert layers["conv1"]["operations"] == 2 * 20 * 24 * 24 * 25
    assert layers["conv2"]["operations"] == 2 * 50 * 8 * 8 * 20 * 25
    assert layers["ip1"]["operations"] == 2 * 800 * 500
    assert layers["relu1"]["operations"] == 0
    assert all(one["forward_s"] > 0 for one in found["layers"])
    assert found["parameters"]["ip1.weight"] == 400_000
    assert found["samples"] == 2


class Crossing(nn.Module):
    """Functions between layers, a layer that runs twice, one that never does, and one that others are parts of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)
        self.attention, self.recurrent, self.unused = nn.MultiheadAttention(4, 2), nn.LSTM(4, 4), nn.Linear(4, 4)
        self.seen = nn.BatchNorm1d(4)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        first = self.seen(self.first(inputs)).relu_()
        twice = self.again(self.again(first) + first)
        attended, _ = self.attention(twice[None], twice[None], twice[None])
        found: Tensor = self.last(torch.cat([self.recurrent(attended)[0][0], inputs], dim=1))
        return found


def test_functions_between_layers_do_not_hide_what_feeds_what() -> None:
    found = of(Crossing(), torch.zeros(3, 4))
    assert {name: one["inputs"] for name, one in found.items()} == {
        "first": ["input"],
        "seen": ["first"],
        "again": ["again", "seen"],
        "attention": ["again"],
        "recurrent": ["attention"],
        "last": ["input", "recurrent"],
    }
    assert found["again"]["operations"] == 2 * (2 * 4 * 4)
    assert found["attention"]["operations"] == 2 * (12 * 4 + 4 * 4)
    assert found["recurrent"]["operations"] == 2 * (16 * 4 + 16 * 4)


def test_the_network_is_afterwards_as_before() -> None:
    module = Crossing()
    before = [value.clone() for value in module.state_dict().values()]
    of(module, torch.ones(3, 4))
    assert all(torch.equal(*pair) for pair in zip(before, module.state_dict().values(), strict=True))
    assert module.calls == 0
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())
