"""Networks of the zoo, whose workers keep shares, train what one device trains."""

from __future__ import annotations

from typing import Any

import pytest

from train._training import USER_NETWORKS, Quick, Trained, assert_parameters, trained
from train.test_equal_workers import ROUNDING, RULES
from train.test_sharded import LEVEL_1, LEVEL_2, LEVEL_3, RING, SHARED
from volary.session import Session

IMAGES = {"name": "synthetic", "shape": (1, 20, 20), "classes": 5, "samples": 38, "kind": "blobs"}
TOKENS = {"name": "synthetic", "shape": (7,), "classes": 11, "samples": 38, "kind": "tokens"}
SMALL_GPT = {"layers": 2, "heads": 2, "width": 16, "dropout": 0.0}
SMALL_LSTM = {"hidden": 12, "dropout": 0.0}
WAYS = [
    {"exchange": RING, "partition": LEVEL_2},
    {"exchange": SHARED, "partition": LEVEL_1},
    {"exchange": RING, "partition": LEVEL_3},
]


def of(
    network: dict[str, Any], source: dict[str, Any], optimizer: dict[str, Any], strategy: dict[str, Any], **train: Any
) -> Session:
    """Twenty steps of ten samples."""
    return Session(
        network=network,
        data={"source": source, "batch_size": 10},
        optimizer=optimizer,
        train={"steps": 20, **train},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy=strategy,
    )


def zoo(name: str, **sizes: Any) -> dict[str, Any]:
    return {"name": f"{USER_NETWORKS}:Zoo64", "zoo": name, "of": sizes}


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    """By name of the network and the rule, and place of the strategy; a worker alone trains each once."""
    adam, sgd = RULES["adam"] | {"lr": 1e-3}, RULES["sgd"] | {"lr": 0.01}
    networks = {
        "lenet": (zoo("lenet"), IMAGES),
        "alexnet-like": ({"name": f"{USER_NETWORKS}:AlexNetLike"}, IMAGES),
        "gpt": (zoo("gpt", **SMALL_GPT), TOKENS),
        "lstm": (zoo("lstm", **SMALL_LSTM), TOKENS),
    }
    return {
        f"{name} {rule} {place}": trained(rank, world_size, of(*network, settings, strategy), f"{name} {rule} {place}",
                                          disk=Quick())
        for name, network in networks.items()
        for rule, settings in (("adam", adam), ("sgd", sgd))
        for place, strategy in enumerate(WAYS if world_size > 1 else [{}])
    }  # fmt: skip


@pytest.mark.slow  # test_sharded.py and test_gathered.py have every kind of layer
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_networks_of_the_zoo_equal_one_device_over_20_steps(workers, world_size):
    alone = train_all(0, 1)
    for rank, found in enumerate(workers(world_size, train_all)):
        assert len(found) == len(WAYS) * len(alone)
        for name, one in found.items():
            expected = alone[f"{name.rpartition(' ')[0]} 0"]
            assert expected.losses[-1] != pytest.approx(expected.losses[0], rel=1e-3), "something was learned"
            assert_parameters(one, expected, ROUNDING, (name, rank))
