"""Two axes at once: replicas with samples of their own, each of which a group of workers holds, train as one device."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch

from _workers import joined
from partition._cut import assert_same
from train._training import Quick, Trained, session, trained
from train.test_equal_workers import RULES
from volary.errors import SettingError
from volary.session import Session
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

FEW = {"steps": 8}
INSIDE: dict[str, Any] = {
    "tensor": 2,
    "pipeline": {"workers": 2, "micro_batches": 2},
    "hybrid": {"workers": 2, "scheme": 3},
    "branches": {"workers": 2, "on": {"layers.2": [0], "layers.4": [1]}},
    "sharded": {"workers": 2, "level": 3},
}


def mesh(inside: str, **more: Any) -> dict[str, Any]:
    return {"workers": 4, "partition": {"name": "mesh", "axes": {"data": 2, inside: INSIDE[inside]}}, **more}


def sessions(strategy: dict[str, Any]) -> dict[str, Session]:
    """By name: what replicas exchange, and what only the workers of one know together. 41 samples: the last batch of an
    epoch has one, so that a replica has none.
    """
    adam, sgd = RULES["adam"], RULES["sgd"]
    clipped = FEW | {"clip_norm": 0.05, "accumulate": 2}
    source = {"name": "points", "samples": 41}
    return {
        "adam": session("Exact", source=source, optimizer=adam, train=FEW, strategy=strategy),
        "clipped": session("Exact", optimizer=sgd, train=clipped, strategy=strategy),
    }


def train_all(rank: int, world_size: int, name: str) -> dict[str, Trained]:
    return {
        inside: trained(rank, world_size, sessions(mesh(inside) if inside else {})[name], f"in {inside}", disk=Quick())
        for inside in (INSIDE if world_size > 1 else [""])
    }


def assert_part(found: Trained, alone: Trained, one: Session, rank: int, where: str) -> None:
    """A rank's values are its part of one device's."""
    seed_all(one.train.seed)
    module = build_model(one, torch.device("cpu")).module
    holdings = one.strategy.partition.part(module, rank, one.strategy.workers).holdings
    parts = {name: alone.parameters[name] for name in found.parameters}
    assert holdings.kept_share < 0.9, "something is elsewhere"
    assert_same(found, replace(alone, parameters=parts), dict(holdings.blocks), where)


@pytest.mark.parametrize("name", ["adam", pytest.param("clipped", marks=pytest.mark.slow)])
def test_replicas_that_groups_hold_equal_one_device(workers, name, tmp_path, monkeypatch):
    everyone = workers(4, train_all, name)
    monkeypatch.chdir(tmp_path)
    alone = train_all(0, 1, name)[""]
    for rank, found in enumerate(everyone):
        for inside in INSIDE:
            assert_part(found[inside], alone, sessions(mesh(inside))[name], rank, f"{inside}, rank {rank}:")


ALIKE = ("tensor", "pipeline", "branches")  # whose workers learn from the same samples
LOCAL = {"consistency": {"name": "local", "period": 2, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}}


def stepwise(network: str, strategy: dict[str, Any]) -> Session:
    """Saves after 4 of 8 steps, with Adam; evaluated, and compared, in between."""
    return session(
        network,
        source={"name": "points", "samples": 121},
        optimizer=RULES["adam"],
        train={"steps": 8, "compare_replicas": "3 steps"},
        evaluate={"every": "4 steps"},
        checkpoint={"every": "4 steps"},
        strategy=strategy,
    )


def interrupted(rank: int, world_size: int, network: str, ways: dict[str, Any]) -> dict[str, list[Trained]]:
    """By way: what trains on without a stop, what goes on from its own checkpoint after 4 steps, and what then goes on
    in each other way.
    """
    found = {}
    for name, strategy in ways.items():
        one = stepwise(network, strategy)
        found[name] = [trained(rank, world_size, one, f"whole {name}", disk=Quick())]
        trained(rank, world_size, one, f"halves {name}", disk=Quick(), until=lambda step: step == 4)
        for other, then in ways.items():
            folder = f"{name} to {other}"
            if rank == 0:
                shutil.copytree(f"halves {name}", folder)
            joined().bulletin.share(f"copied {folder}", 1)
            found[name].append(trained(rank, world_size, stepwise(network, then), folder, disk=Quick()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("network", "consistency"), [("Exact", {}), ("Dropping", {}), ("Dropping", LOCAL)])
def test_a_mesh_goes_on_bit_for_bit_and_from_and_to_other_partitions(workers, network, consistency):
    """Dropout draws apart where layers are cut apart, so that losses are others then."""
    ways = {inside: mesh(inside, **consistency) for inside in INSIDE} | {"data": {"workers": 4, **consistency}}
    everyone = workers(4, interrupted, network, ways)
    for rank, found in enumerate(everyone):
        for name, (whole, *resumed) in found.items():
            for other, one in zip(ways, resumed, strict=True):
                where = f"{name} to {other}, rank {rank}"
                assert one.outcome == "finished" and len(one.losses) == 4, where
                if network == "Exact":
                    assert one.losses == pytest.approx(whole.losses[-4:], abs=1e-6), where
                if name == other:
                    assert one.losses == whole.losses[-4:], where
                    for parameter, values in whole.parameters.items():
                        assert torch.equal(one.parameters[parameter], values), (where, parameter)


def train_local(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    one = session("Exact", optimizer=RULES["adam"], train=FEW, strategy={**strategy, **LOCAL})
    return trained(rank, world_size, one, f"local {world_size}", disk=Quick())


@pytest.mark.slow
@pytest.mark.parametrize("inside", ALIKE)
def test_groups_that_take_local_steps_equal_workers_that_do(workers, inside):
    alone = workers(2, train_local, {"workers": 2})
    for rank, found in enumerate(workers(4, train_local, mesh(inside))):
        assert_part(found, alone[rank // 2], session("Exact", strategy=mesh(inside)), rank, f"{inside}, rank {rank}:")


@pytest.mark.parametrize(
    ("workers_wanted", "axes", "said"),
    [
        (3, {"data": 2, "tensor": 2}, r"axes.*\{data: 2, tensor: 2\}, which is 4 workers, and workers is 3; accepted"),
        (
            4,
            {"data": 2, "mesh": 2},
            "names 'mesh'; accepted: data, and one of tensor, pipeline, hybrid, branches, sharded",
        ),
        (4, {"data": 2, "branches": 2}, "gives branches no on; accepted: branches: {workers: 2, on: ...}"),
        (8, {"data": 2, "pipeline": 2, "tensor": 2}, "names pipeline and tensor; accepted: data, and one of"),
        (4, {"data": 2, "tensor": 0}, "gives tensor 0 workers; accepted: a whole number from 1"),
        (4, {"data": 2, "tensor": {"workers": 2, "scheme": 1}}, "gives tensor the setting 'scheme'; accepted: workers"),
        (4, {"data": 2, "pipeline": {"workers": 2, "schedule": "odd"}}, "pipeline schedule: 'odd'; accepted: one of"),
        (4, {"data": 2, "pipeline": {"workers": 2, "micro_batches": 0}}, "gives pipeline: micro_batches is 0; accepte"),
        (4, {"data": 2, "pipeline": {"workers": 2, "micro_batches": 6}}, "batch_size.*10; accepted: 12 or more"),
        (4, "data", "accepted: data, and one of"),
    ],
)
def test_axes_that_cannot_be_are_refused_without_a_network(workers_wanted, axes, said):
    with pytest.raises(SettingError, match=said):
        session("Exact", strategy={"workers": workers_wanted, "partition": {"name": "mesh", "axes": axes}})


@pytest.mark.parametrize(
    ("inside", "strategy", "said"),
    [
        ("tensor", {"consistency": "gossip"}, "with consistency=gossip each worker updates all parameters"),
        ("sharded", {"consistency": "elastic"}, "with consistency=elastic each worker updates all parameters"),
    ],
)
def test_what_does_not_go_with_a_mesh_is_refused(inside, strategy, said):
    with pytest.raises(SettingError, match=said):
        session("Exact", strategy=mesh(inside, **strategy))


def train_encoded(rank: int, world_size: int, settings: dict[str, Any]) -> Trained:
    strategy = {"workers": 4, "partition": {"name": "mesh", "axes": {"data": 2, **settings}}, "codec": "onebit"}
    train = {"steps": 12, "compare_replicas": "4 steps"}
    slow = {"name": "sgd", "lr": 0.05}
    one = session("Wide", of={"width": 128, "bits": 32}, optimizer=slow, train=train, strategy=strategy)
    return trained(rank, world_size, one, disk=Quick())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"tensor": 2}, {"hybrid": 2}, {"sharded": {"workers": 2, "level": 2}}])
def test_gradients_between_replicas_travel_encoded_and_replicas_stay_equal(workers, settings):
    for found in workers(4, train_encoded, settings):
        assert found.losses[-1] < found.losses[0] and not found.events("warning")  # of nothing that is encoded
