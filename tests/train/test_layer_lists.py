"""Networks written as lists train on two workers, and over servers, what one device trains."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from network._listed import LENET
from train._served import Kept, served
from train._training import Quick, Trained, trained
from train.test_equal_workers import ROUNDING, RULES
from train.test_sharded import LEVEL_2, RING
from train.test_sharded_zoo import IMAGES, TOKENS, of, zoo
from volary.session import Session
from volary.session.train_section import Train

SIAMESE: list[dict[str, Any]] = [  # a graph with branches, an edge in place, shared and auxiliary parameters
    {"conv": {"name": "stem", "channels": 6, "kernel": 5, "stride": 3}},
    {"tanh": {"inputs": "stem", "edges": "stem"}},
    {"slice": {"name": "halves", "parts": 2, "inputs": "stem"}},
    {"linear": {"name": "left", "outputs": 7, "inputs": "halves.0", "share": {"weight": "tower"}}},
    {"linear": {"name": "right", "outputs": 7, "inputs": "halves.1", "share": {"weight": "tower"}}},
    {"sum": {"name": "apart", "inputs": ["left", "right"], "coefficients": [1, -1]}},
    {"product": {"name": "near", "inputs": ["left", "right"]}},
    {"linear": {"name": "aside", "outputs": "classes", "inputs": "near", "phase": "train"}},
    {"concat": {"inputs": ["apart", "near"]}},
    {"linear": {"name": "answer", "outputs": "classes"}},
]
WORDS: list[Any] = [
    {"embedding": {"symbols": "classes", "width": 8}},
    "positions",
    {"repeat": {"times": 2, "block": [{"attention": {"heads": 2, "causal": True}}, "layer_norm"]}},
    {"lstm": {"hidden": 6}},
    {"linear": {"outputs": "classes", "axis": -1}},
]
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "lenet": (zoo("layers", layers=LENET), IMAGES, RULES["sgd"] | {"lr": 0.01}),
    "siamese": (zoo("layers", layers=SIAMESE, output=("answer", "aside")), IMAGES, RULES["sgd"] | {"lr": 0.05}),
    "words": (zoo("layers", layers=WORDS), TOKENS, RULES["sgd"]),
}
SERVERS: dict[str, Any] = {"workers": 1, "exchange": {"name": "server"}, "bucket_mb": 1e-3}
WAYS: dict[str, dict[str, Any]] = {
    "all-reduce": {"workers": 2, "bucket_mb": 1e-3},
    "shares": {"workers": 2, "exchange": RING, "partition": LEVEL_2},
}


def session(name: str, strategy: dict[str, Any]) -> Session:
    return replace(of(*NETWORKS[name], strategy), train=Train(steps=6))


@cache
def alone(name: str) -> Trained:
    return trained(0, 1, session(name, {}), f"{name} alone", disk=Quick())


def train_all(rank: int, world_size: int) -> dict[tuple[str, str], Trained]:
    return {
        (name, way): trained(rank, world_size, session(name, strategy), f"{name} {way}", disk=Quick())
        for name in NETWORKS
        for way, strategy in WAYS.items()
    }


def over_a_server(rank: int, world_size: int) -> dict[str, Kept | None]:
    return {name: served(rank, world_size, session(name, SERVERS), name) for name in NETWORKS}


def assert_equal(found: dict[str, torch.Tensor], expected: Trained, where: object) -> None:
    assert expected.losses[-1] != pytest.approx(expected.losses[0], rel=1e-3), "something was learned"
    assert set(found) == set(expected.parameters)
    for name, values in expected.parameters.items():
        torch.testing.assert_close(
            found[name], values, rtol=0, atol=ROUNDING, msg=lambda text, name=name: f"{where} {name}: {text}"
        )


def test_two_workers_equal_one(workers: Any) -> None:
    for found in workers(2, train_all):
        assert len(found) == len(NETWORKS) * len(WAYS)
        for (name, way), one in found.items():
            assert_equal(one.parameters, alone(name), (name, way))


@pytest.mark.slow  # servers keep whatever network there is
def test_a_worker_and_a_server_equal_one_device(workers: Any) -> None:
    kept, _ = workers(2, over_a_server)
    for name in NETWORKS:
        assert_equal(kept[name].parameters, alone(name), name)


@pytest.mark.slow  # three processes on two cores
def test_two_workers_over_a_server_equal_one_device(workers: Any) -> None:
    kept, *_ = workers(3, two_over_a_server)
    for name in NETWORKS:
        assert_equal(kept[name].parameters, alone(name), name)


def two_over_a_server(rank: int, world_size: int) -> dict[str, Kept | None]:
    return {name: served(rank, world_size, session(name, SERVERS | {"workers": 2}), name) for name in NETWORKS}
