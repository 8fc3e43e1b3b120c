"""Replicas that several workers hold together, over servers: each pushes and pulls its own slices."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from partition._cut import GPT
from train._served import Kept, served
from train._training import Quick, Trained, session, trained
from train.test_equal_workers import ROUNDING, RULES
from train.test_sharded_zoo import IMAGES, TOKENS, of, zoo
from volary.codec import ROOM as CODECS
from volary.errors import SettingError
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.session.spec import Strategy

INSIDE: dict[str, Any] = {"tensor": 2, "pipeline": {"workers": 2, "micro_batches": 2}}
BRANCHES = {"workers": 2, "on": {"layers.2": [1], "layers.4": [0]}}  # of a perceptron, one after the other


def cut(inside: str, replicas: int, servers: int = 2, consistency: Any = "bsp", **more: Any) -> Strategy:
    """Replicas, each of which two workers hold."""
    exchange = {"name": "server", "servers": servers}
    partition = {"name": "mesh", "axes": {"data": replicas, inside: (INSIDE | {"branches": BRANCHES})[inside]}}
    return Strategy(
        workers=2 * replicas, exchange=exchange, consistency=consistency, partition=partition, bucket_mb=4e-4, **more
    )


def sessions() -> dict[str, Session]:
    adam, sgd, twenty = RULES["adam"], RULES["sgd"], {"steps": 20}
    return {
        "perceptron": session("Exact", optimizer=adam, source={"name": "points", "samples": 41}, train=twenty),
        "clipped": session("Exact", optimizer=sgd, train=twenty | {"clip_norm": 0.05, "accumulate": 2}),
        "lenet": of(zoo("lenet"), IMAGES, sgd | {"lr": 0.01}, {}),
        "transformer": of(zoo("gpt", **GPT, tied=False), TOKENS, adam | {"lr": 1e-3}, {}),
    }


def train_all(rank: int, world_size: int, inside: str, names: list[str]) -> dict[str, Kept | None]:
    replicas = (world_size - 2) // 2
    found = {}
    for name in names:
        one = replace(sessions()[name], strategy=cut(inside, replicas))
        found[name] = served(rank, world_size, one, name)
    return found


def assert_equal(kept: Kept, alone: Trained, where: str) -> None:
    for name, values in alone.parameters.items():
        torch.testing.assert_close(
            kept.parameters[name], values, rtol=0, atol=ROUNDING, msg=lambda text: f"{where}: {text}"
        )


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(
    "names", [["perceptron"], pytest.param(["clipped", "lenet", "transformer"], marks=pytest.mark.slow)]
)
def test_replicas_in_parts_over_servers_equal_one_device(workers, inside, names, tmp_path, monkeypatch):
    everyone = workers(6, train_all, inside, names)
    monkeypatch.chdir(tmp_path)
    for name in names:
        alone = trained(0, 1, sessions()[name], f"alone {name}", disk=Quick())
        assert_equal(everyone[0][name], alone, name)


def test_branches_of_one_worker_each_over_servers_equal_one_device(workers, tmp_path, monkeypatch):
    everyone = workers(6, train_all, "branches", ["perceptron"])
    monkeypatch.chdir(tmp_path)
    assert_equal(everyone[0]["perceptron"], trained(0, 1, sessions()["perceptron"], disk=Quick()), "branches")


def test_branches_that_several_workers_have_are_refused_over_servers():
    several = {"name": "branches", "on": {"layers.2": [0, 1]}}
    with pytest.raises(SettingError, match=r"exchange=allreduce, or one worker for each branch in partition.on"):
        session("Exact", strategy={"workers": 2, "exchange": "server", "partition": several})


# of four steps each, two workers: over two servers, or keeping all themselves
WALK: list[tuple[str, bool]] = [
    ("tensor", True),
    ("tensor", False),
    ("pipeline", True),
    ("data", True),
    ("tensor", True),
    ("pipeline", False),
]


def strategy(partition: str, *, served: bool) -> Strategy:
    if partition != "data" and served:
        return cut(partition, 1)
    if served:
        return Strategy(workers=2, exchange={"name": "server", "servers": 2}, bucket_mb=4e-4)
    return Strategy(
        workers=2, partition={"name": partition, **({"micro_batches": 2} if partition == "pipeline" else {})}
    )


def walk_on(rank: int, world_size: int, folder: str, number: int) -> None:
    """Four more steps, as the walk says, of the run in the folder."""
    (partition, over_servers), until = WALK[number], 4 * number + 4
    os.chdir(folder)
    here = replace(crossing(), strategy=strategy(partition, served=over_servers))
    if over_servers:
        if rank == 0:
            RunDirectory(Path("runs/it")).session.write_text(here.to_yaml())
        distributed.barrier()
        served(rank, world_size, here, until={0: until})
    else:
        trained(rank, world_size, here, Path("runs/it/checkpoints"), disk=Quick(), until=lambda step: step == until)


def crossing() -> Session:
    """With Adam, whose state is compared by what it does next; evaluated on the way."""
    return session("Exact", optimizer=RULES["adam"], train={"steps": 28}, evaluate={"every": "5 steps"})


@pytest.mark.slow  # six runs
def test_what_servers_wrote_of_parts_any_other_partition_goes_on_from(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = replace(crossing(), strategy=strategy("data", served=True))
    RunDirectory.create(Path("runs"), "it", "it", first.to_yaml(), Quick())
    for number, (_, over_servers) in enumerate(WALK):
        workers(4 if over_servers else 2, walk_on, str(tmp_path), number)
    found = trained(0, 1, crossing(), Path("runs/it/checkpoints"), disk=Quick())
    alone = trained(0, 1, crossing(), "alone", disk=Quick())
    assert [row.step for row in found.rows] == [25, 26, 27, 28]
    for name, values in alone.parameters.items():
        torch.testing.assert_close(found.parameters[name], values, rtol=0, atol=ROUNDING)


def encoded(rank: int, world_size: int, inside: str) -> list[tuple[str, list[float]]]:
    """By codec: the losses of a run that stops on its way and resumes, with what frames left out."""
    found = []
    for codec in CODECS.names():
        if CODECS.load(codec).needs_gradients:
            continue
        one = session("Exact", optimizer=RULES["sgd"], train={"steps": 8}, checkpoint={"every": "3 steps"})
        one = replace(one, strategy=cut(inside, 1, codec=codec))
        served(rank, world_size, one, codec, until={0: 4})
        kept = served(rank, world_size, one, codec)
        found.append((codec, kept.losses if kept else []))
    return found


@pytest.mark.slow  # two runs for each codec
@pytest.mark.parametrize("inside", INSIDE)
def test_every_codec_encodes_what_parts_push_and_is_resumed(workers, inside):
    for codec, losses in workers(4, encoded, inside)[0]:
        assert losses and losses[-1] < losses[0], codec


def apart(rank: int, world_size: int, inside: str) -> list[Kept | None]:
    """Train two replicas that do not keep step with each other, in steps that late gradients do not make too long."""
    rule = RULES["sgd"] | {"lr": 0.05}
    one = session("Exact", optimizer=rule, train={"steps": 24}, evaluate={"every": "6 steps"})
    names = {"ssp": {"name": "ssp", "staleness": 1}, "async": "async"}
    return [
        served(rank, world_size, replace(one, strategy=cut(inside, 2, consistency=how)), name)
        for name, how in names.items()
    ]


@pytest.mark.slow  # six processes
@pytest.mark.parametrize("inside", INSIDE)
def test_workers_of_a_replica_keep_step_with_each_other_where_replicas_do_not(workers, inside):
    everyone = workers(6, apart, inside)
    for number in range(2):
        first, second, third, fourth = (everyone[rank][number] for rank in range(4))
        assert first.outcome == "finished"
        for one, other in ((first, second), (third, fourth)):
            assert one.losses == pytest.approx(other.losses, rel=1e-5) and one.rows
        assert sum(row.samples for row in second.rows) == 0 < sum(row.samples for row in first.rows)
        measured = [data["figures"]["loss"] for data in first.told("evaluated")]
        assert measured[-1] < measured[0]
