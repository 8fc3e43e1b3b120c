"""Each network of the zoo trains on two workers what it trains on one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from train._training import USER_NETWORKS, Quick, Trained, trained
from volary.network.zoo import ROOM
from volary.session import Session

ELSEWHERE = {"caffe", "layers", "timm", "torchvision"}  # what these make is somebody else's, and tested where they are
SIZES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "alexnet": ({"dropout": 0.0}, (3, 67, 67)),
    "cifar10_quick": ({}, (3, 32, 32)),
    "googlenet": ({"dropout": 0.0}, (3, 32, 32)),
    "gpt": ({"layers": 2, "heads": 2, "width": 16, "dropout": 0.0}, (7,)),
    "inception_v3": ({"dropout": 0.0}, (3, 75, 75)),
    "lenet": ({}, (1, 28, 28)),
    "lstm": ({"hidden": 12, "dropout": 0.0}, (7,)),
    "resnet": ({"depth": 18}, (3, 32, 32)),
    "softmax": ({}, (1, 8, 8)),
    "speech": ({"hidden": 64}, (40,)),
    "vgg": ({"depth": 11, "dropout": 0.0}, (3, 32, 32)),
}
TOKENS = {"gpt", "lstm"}
NORMALISED = {"inception_v3": 1e-7, "resnet": 1e-9}  # by batch norms; rounding grows from one to the next of 94
STEPS = 3


def train_one(rank: int, world_size: int, name: str) -> Trained:
    sizes, shape = SIZES[name]
    kind = "tokens" if name in TOKENS else "blobs"
    session = Session(
        network={"name": f"{USER_NETWORKS}:Zoo64", "zoo": name, "of": sizes},
        data={
            "source": {"name": "synthetic", "shape": shape, "classes": 5, "samples": 20, "kind": kind},
            "batch_size": 7,
        },
        optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9},
        train={"steps": STEPS, "sync_batch_norm": name in NORMALISED},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
    )
    return trained(rank, world_size, session, name, disk=Quick())


def test_each_has_its_sizes_here():
    assert set(SIZES) == set(ROOM.names()) - ELSEWHERE


@pytest.mark.slow  # large networks; test_equal_workers.py has every kind of layer
@pytest.mark.parametrize("name", SIZES)
def test_two_workers_equal_one(workers, name):
    (alone,) = workers(1, train_one, name)
    assert len(alone.losses) == STEPS
    assert alone.losses[-1] != alone.losses[0], "something was learned"
    for found in workers(2, train_one, name):
        for parameter, values in alone.parameters.items():
            torch.testing.assert_close(found.parameters[parameter], values, rtol=0, atol=NORMALISED.get(name, 1e-9))
