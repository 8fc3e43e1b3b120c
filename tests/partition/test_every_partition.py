"""Promises of each partition, by listing the room: a new file is tested the moment it exists."""

from __future__ import annotations

import copy
import dataclasses
import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from volary.data.idle import refuse_idle_workers
from volary.errors import SettingError, VolaryError
from volary.partition import ROOM
from volary.session.script import Script
from volary.session.spec import Session
from volary.sharding.ranges import Range

RANKS = 3
NEEDED: dict[str, Any] = {"branches": {"on": {"0": [0], "2": [1, 2]}}, "mesh": {"axes": {"data": 1, "tensor": RANKS}}}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 80), nn.Tanh(), nn.Linear(80, 3), nn.Linear(3, 4), nn.Linear(4, 2))
    layers[4].requires_grad_(requires_grad=False)
    return layers


def partition(name: str) -> Any:
    """The partition, with what settings it needs."""
    return ROOM.load(name)(**NEEDED.get(name, {}))


@pytest.mark.parametrize("name", ROOM.names())
def test_a_part_has_parameters_of_the_network_and_no_others(name):
    whole = network()
    part = partition(name).part(whole, 0, RANKS)
    own = {id(one) for one in whole.parameters()}
    assert list(part.module.parameters()) and all(id(one) in own for one in part.module.parameters())


@pytest.mark.parametrize("name", ROOM.names())
def test_its_settings_are_frozen_and_the_same_ones_give_the_same_part(name):
    assert dataclasses.is_dataclass(ROOM.load(name)) and partition(name) == partition(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        partition(name).unknown = 1
    whole = network()
    first, second = (partition(name).part(copy.deepcopy(whole), 1, RANKS) for _ in range(2))
    assert [one.shape for one in first.module.parameters()] == [one.shape for one in second.module.parameters()]
    assert first.holdings == second.holdings


@pytest.mark.parametrize("name", ROOM.names())
def test_all_ranks_know_alike_who_keeps_what_and_each_trained_value_has_keepers_once(name):
    found = [partition(name).part(network(), rank, RANKS).holdings for rank in range(RANKS)]
    assert [one.rank for one in found] == list(range(RANKS))
    assert all(one.keepers == found[0].keepers and one.mesh == partition(name).mesh(RANKS) for one in found)
    assert found[0].mesh.size == RANKS
    assert all(one.cut == found[0].cut for one in found)
    whole, trained = network().state_dict(), {f"{layer}.{one}" for layer in (0, 2, 3) for one in ("weight", "bias")}
    for name in {block.name for block in found[0].cut}:
        made = torch.full_like(whole[name], torch.nan)
        for block in (block for block in found[0].cut if block.name == name):
            block.put_into(made, block.taken_from(whole[name]))
        assert made.equal(whole[name])
        trained.discard(name)
    for parameter, values in ((name, whole[name].numel()) for name in trained):
        parts = sorted((part for part in found[0].keepers if part.name == parameter), key=lambda part: part.start)
        assert parts[0].start == 0 and parts[-1].end == values
        assert all(one.end == other.start for one, other in pairwise(parts))
    assert {part.name for part in found[0].keepers} == trained


def test_sharded_gives_each_rank_about_as_many_values_of_what_travels_together():
    large = nn.Linear(1000, 1000)
    holdings = [ROOM.load("sharded")().part(large, rank, RANKS).holdings for rank in range(RANKS)]
    kept = [sum(part.size for part in one.owned) for one in holdings]
    assert sum(kept) == 1_001_000 and max(kept) - min(kept) < 100
    assert Range("bias", 0, 320) in holdings[0].owned, "whole cache lines"
    assert all(len(ranks) == 1 for ranks in holdings[0].keepers.values())


@pytest.mark.parametrize(("name", "fewest"), [("data", 4), ("tensor", 1)])
def test_a_batch_has_a_sample_for_each_share_and_not_for_each_worker(name, fewest):
    strategy = {"workers": 4, "partition": name}
    assert (
        Session(network="lenet", data={"source": "digits", "batch_size": fewest}, strategy=strategy).strategy.shares
        == fewest
    )
    refuse_idle_workers(fewest, fewest, fewest)
    if fewest > 1:
        with pytest.raises(VolaryError, match=f"batch_size is {fewest - 1}; accepted: {fewest} or more"):
            Session(network="lenet", data={"source": "digits", "batch_size": fewest - 1}, strategy=strategy)


@pytest.mark.parametrize("optimizer", ["lars", "lamb", "adafactor", "muon"])
def test_an_optimiser_that_needs_whole_tensors_goes_with_those_that_cut_none(optimizer):
    def legal(name: str) -> bool:
        settings = {"name": "mesh", "axes": {"data": 2, "tensor": 2}} if name == "mesh" else name
        whole = {"network": "lenet", "data": {"source": "digits"}, "optimizer": optimizer}
        try:
            Session(**whole, strategy={"workers": 4, "partition": settings})
        except SettingError as error:
            why = rf"optimizer is {optimizer}, and with partition=\w+ workers .*"
            assert re.fullmatch(f"{why}; accepted: optimizer=adam, .* pipeline", str(error)), str(error)
            return False
        return True

    names = set(ROOM.names()) - {"branches", "spark"}  # of which each worker has all, or a task has
    assert {name for name in names if legal(name)} == {"auto", "data", "pipeline"}


@pytest.mark.parametrize(
    ("name", "settings", "early_update"),
    [
        ("hybrid", {"scheme": 2, "updates": "sub_batch"}, False),
        ("mesh", {"axes": {"data": 2, "sharded": 2}}, False),
        ("branches", {"on": {"0": [0]}}, False),
        *((name, {}, True) for name in ("tensor", "hybrid", "pipeline")),
    ],
)
def test_a_loop_of_one_s_own_is_refused_a_partition_that_it_cannot_train_with(name, settings, early_update):
    strategy = {"workers": 4, "partition": {"name": name, **settings}}
    said = f"^(strategy.partition is {name}, and .*|early_update is true, and with partition={name} .*); accepted: "
    with pytest.raises(SettingError, match=said):
        Script(program="train.py", strategy=strategy, early_update=early_update)
