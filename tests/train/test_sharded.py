"""Workers that keep shares train what one device trains, over a ring and in shared memory, and go on from any other."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch

from _workers import joined
from train._training import Quick, Trained, assert_parameters, made, session, started, trained
from train.test_equal_workers import ROUNDING, RULES, assert_as_alone
from volary.codec import ROOM as CODEC_ROOM
from volary.exchange.gradients import row_blocks
from volary.session import Session
from volary.train.loop import train

RING, SHARED = ({"name": "allreduce", "route": route} for route in ("ring", "shared"))
LEVEL_1, LEVEL_2, LEVEL_3 = ({"name": "sharded", "level": level} for level in (1, 2, 3))
FORTY = {"name": "points", "samples": 40}  # every worker has samples in every step


def sharded(network: str, /, exchange: Any = RING, partition: Any = LEVEL_1, **settings: Any) -> Session:
    """A session whose workers keep shares. strategy: more of it."""
    strategy = {"exchange": exchange, "partition": partition, **settings.pop("strategy", {})}
    return session(network, strategy=strategy, **settings)


def sessions() -> dict[str, Session]:
    """By name: every kind of parameter, rule and step, over both routes."""
    adam, sgd, decaying = RULES["adam"], RULES["sgd"], {**RULES["sgd"], "weight_decay": 0.05}
    small: dict[str, Any] = {"bucket_mb": 1e-4}
    return {
        "perceptron, sgd": sharded("Exact", SHARED, optimizer=sgd),
        "perceptron, adam, level 2": sharded("Exact", partition=LEVEL_2, optimizer=adam),
        "in many buckets": sharded("Exact", partition=LEVEL_2, optimizer=sgd, strategy=small),
        "in many buckets of shared memory": sharded("Exact", SHARED, optimizer=adam, strategy=small),
        "not contiguous": sharded("Pictures", optimizer=adam),
        "frozen, tied, unused": sharded("Odd", partition=LEVEL_2, source=FORTY, optimizer=decaying),
        "frozen, tied, unused, in shared memory": sharded("Odd", SHARED, source=FORTY, optimizer=decaying),
        "attention": sharded("Attentive", SHARED, optimizer=sgd),
        "recurrent": sharded("Recurrent", partition=LEVEL_2, optimizer=sgd),
        "large layers": sharded("Wide", partition=LEVEL_2, optimizer=sgd, of={"width": 256}, train={"steps": 5}),
        "large layers in shared memory": sharded("Wide", SHARED, of={"width": 256}, train={"steps": 5}),
        "accumulated": sharded("Exact", partition=LEVEL_2, optimizer=sgd, train={"steps": 20, "accumulate": 2}),
        "clipped by norm": sharded("Exact", optimizer=sgd, train={"steps": 20, "clip_norm": 0.05}),
        "clipped by norm in shared memory": sharded("Exact", SHARED, train={"steps": 20, "clip_norm": 0.05}),
        "clipped by value": sharded("Exact", optimizer=sgd, train={"steps": 20, "clip_value": 0.01}),
    }


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions().items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1)


@pytest.mark.slow  # those that gather parameters, too, do in test_gathered.py
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_n_workers_that_keep_shares_equal_one_device_over_20_steps(workers, alone, world_size):
    for rank, found in enumerate(workers(world_size, train_all)):
        assert_as_alone(found, alone, rank)


ROUTES = {"ring": RING, "shared memory": SHARED}
OTHERS: dict[str, dict[str, Any]] = {
    "shares": {"partition": LEVEL_1, "exchange": RING},
    "shares, in shared memory": {"partition": LEVEL_1, "exchange": SHARED},
    "whole": {"partition": "data", "exchange": {"name": "allreduce", "route": "torch"}},
}
CROSSED = OTHERS | {"shares of gradients, too": {"partition": LEVEL_2, "exchange": RING}}


def stepwise(strategy: dict[str, Any], **more: Any) -> Session:
    """A session that saves after 6 of 12 steps, with dropout, batch norm and Adam."""
    settings = {"optimizer": RULES["adam"], "train": {"steps": 12}, "checkpoint": {"every": "6 steps"}, **more}
    return session("Dropping", source=FORTY, strategy=strategy, **settings)


def interrupted(rank: int, world_size: int) -> dict[str, list[Trained]]:
    """By strategy: what trains on without a stop, and what goes on from its own checkpoint after 6 steps."""
    found = {}
    for name, strategy in OTHERS.items():
        one = stepwise(strategy)
        whole = trained(rank, world_size, one, f"whole {name}", disk=Quick())
        trained(rank, world_size, one, f"halves {name}", disk=Quick(), until=lambda step: step == 6)
        found[name] = [whole, trained(rank, world_size, one, f"halves {name}", disk=Quick())]
    return found


def test_as_many_workers_that_keep_shares_go_on_bit_for_bit(workers):
    for found in workers(2, interrupted):
        for name, (whole, resumed) in found.items():
            assert resumed.outcome == "finished" and len(resumed.rows) == 6, name
            for parameter, values in whole.parameters.items():
                assert torch.equal(resumed.parameters[parameter], values), (name, parameter)


def left_after_6(rank: int, world_size: int, folder: str, written: str) -> None:
    one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=CROSSED[written])
    trained(rank, world_size, one, f"{folder}/left", disk=Quick(), until=lambda step: step == 6)


def go_on(rank: int, world_size: int, folder: str) -> dict[str, Trained]:
    """By who reads: what comes of it."""
    found = {}
    for name, strategy in CROSSED.items():
        if rank == 0:
            shutil.copytree(f"{folder}/left", f"{folder}/{name}")
        joined().bulletin.share(f"copied {name}", 1) if world_size > 1 else None
        one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=strategy)
        found[name] = trained(rank, world_size, one, f"{folder}/{name}", disk=Quick())
    return found


@pytest.mark.slow  # test_gathered_steps.py goes on from other cuts
@pytest.mark.parametrize("written", CROSSED)
@pytest.mark.parametrize(
    ("left", "world_size"), [(2, 4), (2, 3), (2, 1), (3, 4), (3, 2), (3, 1), (4, 3), (4, 2), (4, 1)]
)
def test_other_numbers_of_workers_and_whole_replicas_go_on_from_shares_and_these_from_them(
    workers, tmp_path, left, world_size, written
):
    folder = str(tmp_path)
    alone = trained(0, 1, session("Exact", source=FORTY, optimizer=RULES["adam"]), f"{folder}/alone", disk=Quick())
    workers(left, left_after_6, folder, written)
    everyone = workers(world_size, go_on, folder) if world_size > 1 else [go_on(0, 1, folder)]
    for name, found in everyone[0].items():
        assert len(found.rows) == 14
        assert_parameters(found, alone, ROUNDING, name)


def kept_values(rank: int, world_size: int) -> float:
    """The share of what Adam remembers of each value: that of what a worker alone has."""
    one = made(rank, world_size, sharded("Wide", partition=LEVEL_2, optimizer=RULES["adam"], of={"width": 256}))
    with started(one):
        train(one)
    parts = one.coordinator.rank.network.update.state()
    values = sum(each["exp_avg"].numel() for *_, each, _ in parts)
    return values / sum(parameter.numel() for parameter in one.flow.module.parameters())


def test_a_worker_s_optimiser_remembers_its_share_alone(workers):
    for world_size in (2, 3):
        for share in workers(world_size, kept_values):
            assert share == pytest.approx(1 / world_size, rel=0.02)


CODECS = [*(name for name in CODEC_ROOM.names() if name != "none"), {"large.*": "onebit", "*": "none"}]


def by_codec(rank: int, world_size: int, partition: dict[str, Any]) -> dict[str, list[float]]:
    """The losses of each step, by codec."""
    row_blocks.LARGE_BYTES = 2**13  # of this process: the two large layers may travel as factors
    found = {}
    for codec in CODECS:
        one = sharded("Wide", partition=partition, of={"bits": 32}, source=FORTY, strategy={"codec": codec})
        found[str(codec)] = trained(rank, world_size, one, f"codec {codec}".replace("*", ""), disk=Quick()).losses
    return found


@pytest.mark.slow  # test_left_out.py has each codec
@pytest.mark.parametrize(
    "partition",
    [pytest.param(LEVEL_2, id="level 2", marks=pytest.mark.slow), pytest.param(LEVEL_3, id="level 3")],
)
def test_every_codec_encodes_what_goes_to_owners(workers, partition):
    alone = trained(0, 1, session("Wide", of={"bits": 32}, source=FORTY), disk=Quick()).losses
    for found in workers(2, by_codec, partition):
        for codec, losses in found.items():
            assert losses[:1] == pytest.approx(alone[:1], rel=1e-4), codec
            assert losses[-1] < losses[0], codec
            if codec in ("fp16", "bf16", "factors", "auto"):
                assert losses == pytest.approx(alone, rel=0.05), codec
