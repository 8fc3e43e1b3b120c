"""`volary.parameter_groups`: rates of a loop of one's own by name and by layer, with every way to train."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import volary
from train import _own_loops
from train._own_served import own_served
from train.test_own_loop import ROUNDING, call
from volary.errors import BadInput, SettingError
from volary.train.own.worker import Worker

WAYS: dict[str, dict[str, Any]] = {
    "bsp": {},
    "shards": {"partition": {"name": "sharded", "level": 2}},
    "tensor": {"partition": "tensor"},
    "pipeline": {"partition": {"name": "pipeline", "micro_batches": 3}},
}
BIASES = {"match": "*bias", "lr": 2, "weight_decay": 0}


def stepping(worker: Worker, *, by_hand: bool = False, flat: bool = False, served: bool = False) -> dict[str, Tensor]:
    """18 steps with a rate for each layer, which a schedule changes."""
    model = _own_loops.network()
    first, last = model[0], model[2]
    groups: list[dict[str, Any]] = [
        {"params": [first.weight], "lr": 0.05, "weight_decay": 0.01},
        {"params": [last.weight], "lr": 0.1, "weight_decay": 0.01},
        {"params": [first.bias], "lr": 0.1, "weight_decay": 0.0},
        {"params": [last.bias], "lr": 0.2, "weight_decay": 0.0},
    ]
    if flat:
        groups = volary.parameter_groups(model, lr=0.1, weight_decay=0.01)
    elif not by_hand:
        groups = volary.parameter_groups(model, lr=0.1, weight_decay=0.01, layer_decay=0.5, parameters=[BIASES])
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 6, gamma=0.5)
    model, optimizer = worker.distribute(model, optimizer)
    feed = worker.feed(_own_loops.points(), batch_size=4, shuffle=False)
    for _ in range(3):
        for inputs, targets in feed:
            optimizer.zero_grad()
            if served:
                cross_entropy(model(inputs), targets).backward()
            else:
                worker.learn(inputs, targets, cross_entropy)
            optimizer.step()
            schedule.step()
    return {name: values.clone() for name, values in model.state_dict().items()}


def in_ways(rank: int, world_size: int) -> dict[str, dict[str, Tensor]]:
    return {
        name: call(stepping, rank, world_size, number, strategy=strategy, early_update=name == "shards")[0]
        for number, (name, strategy) in enumerate(WAYS.items())
    }


def test_two_workers_learn_as_one_with_groups_written_by_hand(workers):
    alone = call(lambda worker: stepping(worker, by_hand=True), 0, 1, 0)[0]
    flat = call(lambda worker: stepping(worker, flat=True), 0, 1, 0)[0]
    assert not torch.allclose(alone["0.weight"], flat["0.weight"], atol=1e-3)
    for found in workers(2, in_ways):
        for name, kept in found.items():
            torch.testing.assert_close(kept, alone, rtol=0, atol=ROUNDING, msg=name)


def on_servers(rank: int, world_size: int) -> Any:
    strategy = {"workers": 2, "exchange": {"name": "server", "servers": 2}}
    found = own_served(rank, world_size, lambda worker: stepping(worker, served=True), strategy)
    return None if found is None else found.value


@pytest.mark.slow  # servers take any groups of an optimiser
def test_servers_update_by_them(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = call(lambda worker: stepping(worker, by_hand=True), 0, 1, 0)[0]
    for kept in workers(4, on_servers)[:2]:
        torch.testing.assert_close(kept, alone, rtol=0, atol=1e-9)


def test_frozen_and_compiled_models_have_the_names_and_layers_of_plain_ones():
    model = _own_loops.network()
    model[0].requires_grad_(False)
    groups = volary.parameter_groups(torch.compile(model), lr=1.0, layer_decay=0.5)
    assert [(len(one["params"]), one["lr"]) for one in groups] == [(2, 0.5), (2, 1.0)]
    assert all("weight_decay" not in one for one in groups)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layer_decay": 2}, r"layer_decay is 2; accepted: above 0, up to 1"),
        ({"lr": -1}, r"lr is -1; accepted: 0 or more"),
        ({"weight_decay": -0.5}, r"weight_decay is -0\.5; accepted: 0 or more"),
        ({"parameters": [{"mach": "*bias"}]}, r"parameters\.mach: unknown; did you mean 'match'\?"),
        ({"parameters": BIASES}, r"parameters: is .*; accepted: a list, each settings"),
        (
            {"parameters": [{"match": "head.*"}]},
            r"parameters: match is 'head\.\*', which fits no p.*'0\.weight'",
        ),
        ({"parameters": [BIASES]}, r"the weight_decay of 0\.bias is multiplied by 0, and none is given; accepted: w"),
    ],
)
def test_what_is_no_setting_is_refused(settings, sentence):
    with pytest.raises(SettingError, match=rf"volary\.parameter_groups: (ParameterGroups.*)?{sentence}"):
        volary.parameter_groups(_own_loops.network(), **{"lr": 0.1, **settings})


def test_one_layer_alone_and_what_is_no_module_are_refused():
    with pytest.raises(SettingError, match=r"layer_decay is 0\.5, and the network has one layer; accepted: 1"):
        volary.parameter_groups(nn.Linear(2, 2), lr=0.1, layer_decay=0.5)
    with pytest.raises(BadInput, match="was given a generator; accepted: a torch module"):
        volary.parameter_groups(nn.Linear(2, 2).parameters(), lr=0.1)
