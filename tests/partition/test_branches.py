"""Branches of a network that some workers alone have: what one device trains."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from partition._branched import Branched
from partition._cut import assert_same, blocks
from train._training import Quick, Trained, session, trained
from train.test_equal_workers import RULES
from train.test_sharded_zoo import IMAGES, of
from volary.errors import SettingError
from volary.partition import ROOM
from volary.session import Session

NETWORKS = Path(__file__).with_name("_branched.py")
BRANCHED = {"left": [0, 2], "right.*": [1], "beside": [1, 2]}
LEFT = [
    {"linear": {"name": "left", "outputs": 12, "inputs": "trunk"}},
    {"batch_norm": {"name": "left_norm"}},
    {"activation": {"name": "left_tanh", "function": "tanh"}},
    {"linear": {"name": "left_out", "outputs": 6}},
]
RIGHT = [
    {"linear": {"name": "right", "outputs": 9, "inputs": "trunk"}},
    {"activation": {"name": "right_tanh", "function": "tanh"}},
    {"linear": {"name": "right_out", "outputs": 6}},
]
LAYERS = [
    {"linear": {"name": "trunk", "outputs": 16}},
    *LEFT,
    *RIGHT,
    {"concat": {"name": "both", "inputs": ["left_out", "right_out"]}},
    {"linear": {"name": "last", "outputs": "classes"}},
]


PLAIN = [entry for entry in LAYERS if "batch_norm" not in entry]  # replicas have statistics of their own


def branches(on: dict[str, list[int]]) -> dict[str, Any]:
    return {"partition": {"name": "branches", "on": on}}


def branched(strategy: dict[str, Any], network: str = "Branched", **settings: Any) -> Session:
    arguments = settings.pop("of", {})
    source = {"name": session("Exact").data.source.reference, "samples": 44}
    own = {"optimizer": RULES["adam"], "train": {"steps": 8}, **settings}
    return Session(
        network={"name": f"{NETWORKS}:{network}", **arguments},
        data={"source": source, "batch_size": 10},
        strategy=strategy,
        **{"evaluate": {"every": "never"}, "checkpoint": {"every": "never"}, **own},
    )


def sessions(cut: bool) -> dict[str, Session]:
    """By name: every kind of step. 44 samples: the last batch of an epoch has four."""
    strategy = branches(BRANCHED) if cut else {}
    sgd = RULES["sgd"] | {"lr": 0.05}
    clipped = {"steps": 8, "clip_norm": 0.05, "accumulate": 2}
    return {
        "modules": branched(strategy),
        "clipped": branched(strategy, optimizer=sgd, train=clipped),
        "graph": of({"layers": LAYERS}, IMAGES, sgd, branches({"left*": [0, 2], "right*": [1]}) if cut else {}),
        "stops": branched(branches({"left": [1]}) if cut else {}, "StopsWithin", optimizer=sgd),
    }


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions(world_size > 1).items()}


@pytest.mark.parametrize("world_size", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_with_some_branches_each_equal_one_device(workers, world_size, tmp_path, monkeypatch):
    everyone = workers(world_size, train_all)
    monkeypatch.chdir(tmp_path)
    alone = train_all(0, 1)
    for rank, found in enumerate(everyone):
        for name, one in sessions(cut=True).items():
            own = blocks(one, rank, world_size)
            assert own, "something is elsewhere for some"
            assert_same(found[name], alone[name], own, f"{name}, rank {rank}:", 1e-5 if name == "graph" else 1e-11)


def stepwise(strategy: dict[str, Any]) -> Session:
    """Saves after 4 of 8 steps, with dropout, batch norm and Adam; evaluated, and compared, in between."""
    return branched(
        strategy,
        of={"dropout": 0.3},
        train={"steps": 8, "compare_replicas": "3 steps"},
        evaluate={"every": "3 steps"},
        checkpoint={"every": "4 steps"},
    )


OTHERS: dict[str, dict[str, Any]] = {
    "others": branches({"left": [1], "right.*": [0, 2]}),
    "data": {"workers": 3},
    "tensor": {"workers": 3, "partition": "tensor"},
}


def interrupted(rank: int, world_size: int) -> list[Trained]:
    """Results of training without a stop, and continued from its own checkpoint after 4 steps; in other ways, too."""
    one = stepwise(branches(BRANCHED))
    whole = trained(rank, world_size, one, "whole", disk=Quick())
    trained(rank, world_size, one, "halves", disk=Quick(), until=lambda step: step == 4)
    found = [whole]
    for name, strategy in {"same": branches(BRANCHED), **OTHERS}.items():
        if rank == 0:
            shutil.copytree("halves", name)
        joined().bulletin.share(f"copied {name}", 1)
        found.append(trained(rank, world_size, stepwise(strategy), name, disk=Quick()))
    return found


def test_the_same_branches_go_on_bit_for_bit_and_other_partitions_from_them(workers):
    for rank, (whole, same, *others) in enumerate(workers(3, interrupted)):
        assert same.outcome == "finished" and same.losses == whole.losses[-4:]
        assert len(whole.metrics) == (3 if rank == 0 else 0)
        for name, values in whole.parameters.items():
            assert torch.equal(same.parameters[name], values), name
        assert [(one.outcome, len(one.losses)) for one in others] == [("finished", 4)] * len(OTHERS)


def go_on(rank: int, world_size: int, written: dict[str, Any], then: dict[str, Any]) -> Trained:
    plain = {"norm": False}
    four = branched(written, of=plain, train={"steps": 4}, checkpoint={"every": "4 steps"})
    trained(rank, world_size, four, "written", disk=Quick())
    return trained(rank, world_size, branched(then, of=plain), "written", disk=Quick())


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("begins", [True, False])
def test_other_partitions_train_on_from_branches_and_these_from_them_as_one_device(
    workers, other, begins, tmp_path, monkeypatch
):
    own = branches(BRANCHED)
    everyone = workers(3, go_on, *((own, other) if begins else (other, own)))
    monkeypatch.chdir(tmp_path)
    alone = go_on(0, 1, {}, {})
    for rank, found in enumerate(everyone):
        ended = branched(other if begins else own, of={"norm": False})
        assert_same(found, alone, blocks(ended, rank, 3), f"rank {rank}:")


def in_replicas(rank: int, world_size: int) -> Trained:
    axes = {"data": 2, "branches": {"workers": 2, "on": {"left*": [0], "right*": [1]}}}
    strategy = {"workers": 4, "partition": {"name": "mesh", "axes": axes}} if world_size > 1 else {}
    one = of({"layers": PLAIN}, IMAGES, RULES["sgd"] | {"lr": 0.05}, strategy)
    return trained(rank, world_size, one, "mesh", disk=Quick())


@pytest.mark.slow
def test_replicas_that_each_have_branches_on_some_workers_equal_one_device(workers, tmp_path, monkeypatch):
    everyone = workers(4, in_replicas)
    monkeypatch.chdir(tmp_path)
    alone = in_replicas(0, 1)
    cut = of({"layers": PLAIN}, IMAGES, RULES["sgd"], branches({"left*": [0], "right*": [1]}))
    for rank, found in enumerate(everyone):
        assert_same(found, alone, blocks(cut, rank % 2, 2), f"rank {rank}:", 1e-5)


SAID = {
    "on is [0]; accepted: workers by layers": [0],
    "on gives left the workers []; accepted": {"left": []},
    "on gives left a worker twice: [1, 1]; accepted: each once": {"left": [1, 1]},
    "on gives left the workers [True]; accepted": {"left": [True]},
}
PLACED = {
    "on gives left worker 3, and there are 3; accepted: 0 to 2": {"left": [3]},
    "on names 'lift', which fits no layer; accepted: first, left, right, beside, last": {"lift": [0]},
    "on says of left.0 and of left, which is around or in it": {"left": [0], "left.0": [1]},
    "on says of left and of left, which is it": {"left": [0], "lef*": [1]},
}


@pytest.mark.parametrize(("said", "on"), SAID.items())
def test_workers_that_are_none_are_refused(said, on):
    with pytest.raises(SettingError) as found:
        ROOM.load("branches")(on=on)
    assert str(found.value).startswith(said)


@pytest.mark.parametrize(("said", "on"), PLACED.items())
def test_layers_that_cannot_be_placed_so_are_refused(said, on):
    with pytest.raises(SettingError) as found:
        ROOM.load("branches")(on=on).part(Branched(), 0, 3)
    assert str(found.value).startswith(said)


def test_a_parameter_that_others_use_too_is_refused_and_one_without_a_dimension():
    tied = Branched()
    tied.left[4].bias = tied.right[1].bias
    with pytest.raises(SettingError, match=r"its parameter left.4.bias is also of a layer that others have"):
        ROOM.load("branches")(on={"left": [0]}).part(tied, 0, 2)
    single = Branched()
    single.left.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(SettingError, match=r"its parameter left.scale is a single value without a dimension"):
        ROOM.load("branches")(on={"left": [0]}).part(single, 0, 2)
    ROOM.load("branches")(on={"left": [0], "right.*": [0]}).part(tied, 0, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exchange": "server"}, "partition: is branches, and with exchange=server workers send to servers alone"),
        ({"workers": 2}, "partition.on gives left worker 2, and there are 2; accepted: 0 to 1"),
    ],
)
def test_what_does_not_go_with_branches_is_refused(settings, said):
    with pytest.raises(SettingError, match=said):
        branched({"workers": 3, **branches(BRANCHED), **settings})
