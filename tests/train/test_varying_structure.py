"""Networks whose structure varies with the data train on two workers, and over servers, what one device trains."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from train._served import Kept, served
from train._training import USER_DATA, USER_NETWORKS, Quick, Trained, trained
from train.test_equal_workers import ROUNDING, RULES
from volary.session import Session

TREES = Path(__file__).with_name("_trees.py")
LINES: list[Any] = [  # of points; causal, so what shorter sequences are filled up with changes nothing
    {"lstm": {"hidden": 7}},
    {"attention": {"causal": True}},
    {"linear": {"outputs": "classes", "axis": -1}},
]
DIFFERING = {"name": f"{USER_DATA}:Sequences", "differ": True}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # recursion over trees; words of one kind may be in one worker's share alone, or in none
    "trees": ({"name": f"{TREES}:TreeNet", "classes": 3}, {"source": {"name": f"{TREES}:Trees"}, "batch_size": 8}),
    # sequences of differing length, in batches of differing size: the last one of an epoch has one sample
    "lengths": (
        {"name": f"{USER_NETWORKS}:Zoo64", "zoo": "layers", "of": {"layers": LINES}, "classes": 4},
        {"source": DIFFERING, "pad": True, "batch_size": 10},
    ),
}
SERVERS = {"exchange": {"name": "server"}, "bucket_mb": 1e-3}


def session(name: str, strategy: dict[str, Any]) -> Session:
    network, data = NETWORKS[name]
    return Session(
        network=network,
        data=data,
        optimizer=RULES["sgd"] | {"lr": 0.1},
        train={"steps": 7},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy=strategy,
    )


@cache
def alone(name: str) -> Trained:
    return trained(0, 1, session(name, {}), f"{name} alone", disk=Quick())


def all_reduced(rank: int, world_size: int) -> dict[str, Trained]:
    strategy = {"workers": 2, "bucket_mb": 1e-3}
    return {name: trained(rank, world_size, session(name, strategy), name, disk=Quick()) for name in NETWORKS}


def over_a_server(rank: int, world_size: int) -> dict[str, Kept | None]:
    workers = world_size - 1
    return {
        name: served(rank, world_size, session(name, SERVERS | {"workers": workers}), name) for name in OVER_SERVERS
    }


OVER_SERVERS = ("trees", "lengths")


def assert_equal(found: dict[str, torch.Tensor], expected: Trained, where: str) -> None:
    assert expected.losses[-1] != pytest.approx(expected.losses[0], rel=1e-3), "something was learned"
    for name, values in expected.parameters.items():
        torch.testing.assert_close(
            found[name], values, rtol=0, atol=ROUNDING, msg=lambda text, name=name: f"{where} {name}: {text}"
        )


def test_two_workers_equal_one(workers: Any) -> None:
    for found in workers(2, all_reduced):
        for name in NETWORKS:
            assert_equal(found[name].parameters, alone(name), name)


@pytest.mark.slow  # three processes on two cores
def test_two_workers_over_a_server_equal_one(workers: Any) -> None:
    kept, *_ = workers(3, over_a_server)
    for name in OVER_SERVERS:
        assert_equal(kept[name].parameters, alone(name), name)
