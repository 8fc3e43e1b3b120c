"""Layer-wise learning rates: what a layer is, and that networks learn as with torch's groups, however trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from train._served import served
from train._training import session, trained
from train._user_data import points
from train.test_freezing import staged
from train.test_served import assert_equal, over
from volary.errors import SettingError
from volary.network import build
from volary.network.zoo import ROOM as ZOO
from volary.session import Session, SessionError
from volary.session.spec import Strategy
from volary.train.factors.by_layer import layers_of
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.01},
    "adamw": {"name": "adamw", "lr": 0.02, "weight_decay": 0.1},
}
BIASES = [{"match": "*bias", "lr": 2, "weight_decay": 0}]
BY_HAND = [  # of the network `Exact`, from its end: what it never uses, and three layers
    {"match": "unused.bias", "lr": 2, "weight_decay": 0},
    {"match": "layers.4.bias", "lr": 1, "weight_decay": 0},
    {"match": "layers.4.weight", "lr": 0.5},
    {"match": "layers.2.bias", "lr": 0.5, "weight_decay": 0},
    {"match": "layers.2.weight", "lr": 0.25},
    {"match": "layers.0.bias", "lr": 0.25, "weight_decay": 0},
    {"match": "layers.0.weight", "lr": 0.125},
]
PARTITIONS: dict[str, Any] = {
    "data": "data",
    "shards": {"name": "sharded", "level": 2},
    "gathered": {"name": "sharded", "level": 3},
    "tensor": "tensor",
    "pipeline": {"name": "pipeline", "micro_batches": 2},
}


def of(optimizer: str = "sgd", steps: int = 12, **more: Any) -> Session:
    train = {"steps": steps, "layer_decay": 0.5, "parameters": BIASES, **more.pop("train", {})}
    return session("Exact", optimizer=OPTIMIZERS[optimizer], train=train, **more)


def layers(module: nn.Module) -> list[str]:
    """The first parameter of each layer, from the input on, and how many more it has."""
    return [f"{names[0]} +{len(names) - 1}" for names in layers_of(module)]


def test_items_of_lists_are_layers_and_branches_side_by_side_are_one():
    lenet = build(ZOO.load("lenet")(), (1, 28, 28), 10)
    assert layers(lenet) == ["conv1.weight +1", "conv2.weight +1", "ip1.weight +1", "ip2.weight +1"]
    resnet = layers_of(build(ZOO.load("resnet")(depth=18), (3, 32, 32), 10))
    blocks = [f"stage{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert [names[0].split(".layers")[0] for names in resnet] == ["stem.0.weight", *blocks, "fc.weight"]
    assert all(all(name.startswith(block) for name in names) for names, block in zip(resnet[1:], blocks, strict=False))
    googlenet = build(ZOO.load("googlenet")(), (3, 224, 224), 10)
    assert len(layers(googlenet)) == 3 + 9 + 1  # convolutions, inception modules, the classifier


def test_embeddings_are_the_first_layer_and_the_norm_behind_all_blocks_is_of_the_head():
    gpt = ZOO.load("gpt")
    tied = layers_of(build(gpt(layers=2, heads=2, width=16), (7,), 11))
    untied = layers_of(build(gpt(layers=2, heads=2, width=16, tied=False), (7,), 11))
    assert tied[0] == untied[0] == ["tokens.weight", "positions.weight"]
    assert [names[0] for names in tied[1:3]] == ["blocks.0.first.weight", "blocks.1.first.weight"]
    assert (tied[3:], untied[3:]) == ([["norm.weight"]], [["norm.weight", "head.weight"]])


class Patches(nn.Module):
    """A class token and positions beside a convolution, blocks in a list of an encoder, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.patches = nn.Conv2d(1, 4, 2)
        self.norm = nn.BatchNorm2d(4)
        self.encoder = nn.Module()
        self.encoder.positions = nn.Parameter(torch.zeros(1, 5, 4))
        self.encoder.blocks = nn.ModuleList(nn.TransformerEncoderLayer(4, 1, 4) for _ in range(2))
        self.encoder.last = nn.LayerNorm(4)
        self.head = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))


def test_what_modules_have_beside_their_layers_is_of_the_first_one():
    module = Patches()
    found = layers_of(module)
    assert found[0][:3] == ["token", "encoder.positions", "patches.weight"]
    assert found[0][-2:] == ["norm.weight", "norm.bias"]
    assert [names[0] for names in found[1:3]] == [f"encoder.blocks.{n}.self_attn.in_proj_weight" for n in (0, 1)]
    norms = ["encoder.last.weight", "encoder.last.bias", "head.0.weight", "head.0.bias"]
    assert found[3] == [*norms, "head.1.weight", "head.1.bias", "head.2.weight", "head.2.bias"]
    assert found[4] == ["head.3.weight", "head.3.bias"]
    assert sorted(name for names in found for name in names) == sorted(name for name, _ in module.named_parameters())
    assert layers_of(nn.DataParallel(module)) == found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_equals_torch_s_optimiser_with_groups_written_by_hand(optimizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = of(optimizer, steps=8, batch_size=41)  # all samples, whatever their order
    seed_all(one.train.seed)
    module = build_model(one, torch.device("cpu")).module
    named, settings = dict(module.named_parameters()), {**OPTIMIZERS[optimizer]}
    kind, lr = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[settings.pop("name")], settings.pop("lr")
    decay = settings.pop("weight_decay")
    groups = [
        {
            "params": [named[group["match"]]],
            "lr": lr * group["lr"],
            "weight_decay": decay * group.get("weight_decay", 1),
        }
        for group in BY_HAND
    ]
    plain, (inputs, targets) = kind(groups, **settings), points("train").tensors
    for _ in range(8):
        plain.zero_grad()
        cross_entropy(module(inputs), targets).backward()
        plain.step()
    ended = trained(0, 1, one).parameters
    torch.testing.assert_close(ended, {name: values.detach() for name, values in named.items()}, rtol=0, atol=1e-12)


def in_parts(rank: int, world_size: int, names: tuple[str, ...]) -> dict[str, dict[str, Tensor]]:
    found = {}
    for name in names:
        one = replace(of(), strategy=Strategy(workers=world_size, partition=PARTITIONS[name]))
        found[name] = trained(rank, world_size, one, name).parameters
    return found


def compared(workers: Any, names: tuple[str, ...]) -> None:
    by_hand = trained(0, 1, of(train={"layer_decay": 1, "parameters": BY_HAND}), "by-hand")
    flat = trained(0, 1, of(train={"layer_decay": 1}), "flat").parameters
    assert not torch.allclose(flat["layers.0.weight"], by_hand.parameters["layers.0.weight"], atol=1e-3)
    held = workers(2, in_parts, names)
    for name in names:
        for kept in held if name == "pipeline" else held[:1]:
            for parameter, values in kept[name].items():
                if name != "pipeline" or parameter in by_hand.parameters:
                    torch.testing.assert_close(values, by_hand.parameters[parameter], rtol=0, atol=1e-9, msg=name)


def test_two_workers_learn_as_one_with_patterns_written_by_hand(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared(workers, ("data", "pipeline"))


@pytest.mark.slow  # whole networks are asked for their layers as above
def test_two_workers_with_shards_of_parameters_learn_as_one(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared(workers, ("shards", "gathered"))


def on_servers(rank: int, world_size: int):
    return served(rank, world_size, over(of(), 2, world_size - 2), "servers")


@pytest.mark.slow  # servers build the network as workers do
def test_two_servers_update_as_one_worker_does(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = workers(4, on_servers)[0]
    assert_equal(kept.parameters, trained(0, 1, of(), "alone"), "servers")


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = staged(0, 1, of("adamw"), "whole").parameters
    before = staged(0, 1, of("adamw"), "stopped", until=lambda step: step >= 5).parameters
    after = staged(0, 1, of("adamw"), "stopped").parameters
    assert not torch.equal(before["layers.0.weight"], whole["layers.0.weight"])
    assert all(torch.equal(after[name], values) for name, values in whole.items())


@pytest.mark.parametrize("decay", [0, -0.5, 1.5])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(SessionError, match=r"train\.layer_decay: is .*; accepted: above 0, up to 1"):
        of(train={"layer_decay": decay})


def test_a_network_of_one_layer_and_a_rule_of_all_parameters_together_are_refused():
    source = {"name": "synthetic", "shape": [4], "classes": 3, "samples": 8}
    one = Session(network="softmax", data={"source": source, "batch_size": 4}, train={"layer_decay": 0.75})
    with pytest.raises(SettingError, match=r"layer_decay is 0\.75, and the network has one layer; accepted: 1"):
        build_model(one, torch.device("cpu"))
    with pytest.raises(SettingError, match="layer_decay is set, and optimizer lbfgs updates all parameters together"):
        session("Exact", optimizer={"name": "lbfgs"}, train={"layer_decay": 0.5})
