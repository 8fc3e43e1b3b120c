"""Sums that travel and are applied under backward and the next forward: training equals one device's all the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from train._training import OVERLAPPED, USER_LOSSES, Quick, Trained, made, session, trained
from volary.comm.topology.topology import Topology
from volary.errors import PeerLost, SettingError
from volary.exchange import ROOM as EXCHANGES
from volary.exchange.gradients import row_blocks
from volary.exchange.overlap import known_links
from volary.session import Session
from volary.train.loop import train

ROUNDING = 1e-11  # of 64 bits, over 20 steps
CHUNK_BY_CHUNK = "chunk by chunk, as sums arrive"
RULES: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "nesterov": True},
    "adam": {"name": "adam", "lr": 0.02, "weight_decay": 0.01, "amsgrad": True},
    "adamw": {"name": "adamw", "lr": 0.02, "weight_decay": 0.1},
    "rmsprop": {"name": "rmsprop", "lr": 0.02, "momentum": 0.9, "centered": True, "weight_decay": 0.01},
    "adagrad": {"name": "adagrad", "lr": 0.1, "lr_decay": 0.1},
    "adadelta": {"name": "adadelta", "lr": 1.0, "weight_decay": 0.01},
    "a rule of the user's own, elementwise": {"name": f"{USER_LOSSES}:OwnElementwiseRule", "lr": 0.2},
}
USES = ("plainly", "twice", "beside", "recomputed", "hooked", "penalised", "listed")
AT_ONCE = {
    "scripted": "together, since layers is TorchScript, which reads its parameters where nobody can wait for them",
    "clipped by norm": "together, since train.clip_norm needs the norm of all gradients",
    "a rule of the user's own": "together, since nothing says that OwnRule updates each value on its own",
}


# what a third rank may change: a plain step, ranks without samples, blocks, and a layer whose weight others use
AMONG_THREE = ("sgd", "accumulated", "clipped by value", "recurrent", "large, used plainly", "large, used beside")
# what another test shows always, or differs from one of the others by a constant: rules are one by one in test_rule.py
LEFT_OUT = (
    *("nesterov", "adamw", "rmsprop", "adagrad", "adadelta", "a rule of the user's own, elementwise"),
    *("in one bucket", "a bucket each", "clipped by value", "scheduled", "attentive", "scripted"),
    *("large, used twice", "large, used recomputed", "large, used hooked", "large, used penalised"),
    *("large, used listed", "large, accumulated", "large, used beside, accumulated"),
)


def overlapped(network: str, bucket_mb: float = 5e-4, **settings: Any) -> Session:
    return session(network, strategy={**OVERLAPPED, "bucket_mb": bucket_mb}, **settings)


def sessions() -> dict[str, Session]:
    # 41 samples: 10 of them a step are divided by 3 unevenly, and the epoch's last one is for rank 0 alone
    found = {name: overlapped("Exact", optimizer=rule) for name, rule in RULES.items()}
    sgd = RULES["sgd"]
    found["in one bucket"] = overlapped("Exact", 25, optimizer=sgd)
    found["a bucket each"] = overlapped("Exact", 1e-6, optimizer=sgd)
    found["accumulated"] = overlapped("Exact", optimizer=sgd, train={"steps": 20, "accumulate": 2})
    found["clipped by value"] = overlapped("Exact", optimizer=sgd, train={"steps": 20, "clip_value": 0.01})
    found["clipped by norm"] = overlapped("Exact", optimizer=sgd, train={"steps": 20, "clip_norm": 0.05})
    found["a rule of the user's own"] = overlapped("Exact", optimizer={"name": f"{USER_LOSSES}:OwnRule", "lr": 0.2})
    found["scheduled"] = overlapped("Exact", optimizer=sgd, schedule={"name": "step", "every": 3, "gamma": 0.7})
    found["not contiguous"] = overlapped("Pictures", optimizer=RULES["adam"])
    found["tied"] = overlapped("Tied64")
    found["scripted"] = overlapped("Scripted", optimizer=sgd)
    found["recurrent"] = overlapped("Recurrent", optimizer=RULES["adam"])
    found["attentive"] = overlapped("Attentive", optimizer=sgd)
    for use in USES:
        found[f"large, used {use}"] = wide(use=use)
    found["large, used twice from step 6"] = wide(use="twice", from_step=5)
    twice = {"steps": 20, "accumulate": 2}
    found["large, accumulated"] = wide(train=twice)
    found["large, used beside, accumulated"] = wide(use="beside", train=twice)
    found["really large"] = overlapped("Wide", 0.25, of={"width": 256}, optimizer=sgd)
    return found


def wide(*, train: dict[str, int] | None = None, **how: Any) -> Session:
    """Two layers that count as large here, of 16 KiB each, in 3 blocks."""
    rule = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
    data = {"name": "points", "samples": 40}  # every worker has samples in every step, and counts the same steps
    return overlapped("Wide", 0.0055, of=how, source=data, optimizer=rule, train=train or {"steps": 20})


def train_all(rank: int, world_size: int, names: Sequence[str]) -> dict[str, Trained]:
    row_blocks.LARGE_BYTES = 2**13  # of this worker's process
    found = sessions()
    return {
        name: trained(rank, world_size, found[name], f"c{number}", disk=Quick()) for number, name in enumerate(names)
    }


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], dict[str, Trained]]:
    """`alone(names)`: what one worker comes to."""

    def train(names: Sequence[str]) -> dict[str, Trained]:
        monkeypatch.setattr(row_blocks, "LARGE_BYTES", row_blocks.LARGE_BYTES)
        return train_all(0, 1, names)

    return train


@pytest.mark.slow  # as test_equal_workers.py
@pytest.mark.parametrize(
    ("world_size", "names"),
    [
        pytest.param(2, None, id="2"),
        pytest.param(2, LEFT_OUT, id="2, all others", marks=pytest.mark.slow),
        pytest.param(3, AMONG_THREE, id="3", marks=pytest.mark.slow),
    ],
)
def test_n_workers_equal_one_over_20_steps(workers, alone, world_size, names):
    names = names or [name for name in sessions() if name not in LEFT_OUT]
    expected_of = alone(names)
    for rank, found in enumerate(workers(world_size, train_all, names)):
        for name in names:
            one = expected_of[name]
            assert (found[name].outcome, len(found[name].rows)) == ("finished", 20)
            for parameter, expected in one.parameters.items():
                torch.testing.assert_close(
                    found[name].parameters[parameter],
                    expected,
                    rtol=0,
                    atol=ROUNDING,
                    msg=lambda text, where=(name, rank, parameter): f"{where}: {text}",
                )
            assert found[name].losses == pytest.approx(one.losses, abs=1e-6), name  # agreed on in 32 bits
            assert found[name].notes("update") == ([AT_ONCE.get(name, CHUNK_BY_CHUNK)] if rank == 0 else [])
            unused = ["unused.weight", "unused.bias"] if rank == 0 and "unused.weight" in one.parameters else []
            told = [
                text["text"].partition(" had no gradient ")[0].split(", ") for text in found[name].events("warning")
            ]
            assert [sorted(names) for names in told] == ([sorted(unused)] if unused else []), "one warning for all"


def train_over_levels(rank: int, world_size: int) -> dict[str, Trained]:
    """As if the third worker were on another machine: the route is another, and sums lie where others read them too."""
    known_links.find = lambda *_: Topology.of([0, 1], [2])
    row_blocks.LARGE_BYTES = 2**13
    found = {}
    for number, name in enumerate(AMONG_THREE):
        one = sessions()[name]
        exchange = EXCHANGES.load("allreduce")(route="two_level")
        one = replace(one, strategy=replace(one.strategy, exchange=exchange))
        found[name] = trained(rank, world_size, one, f"c{number}", disk=Quick())
    return found


@pytest.mark.slow  # each route by itself is in tests/comm/routes
def test_where_sums_are_read_by_others_too_workers_equal_one_as_well(workers, alone):
    expected = alone(AMONG_THREE)
    everyone = workers(3, train_over_levels)
    assert everyone[0]["sgd"].notes("update") == [CHUNK_BY_CHUNK]
    (route,) = everyone[0]["sgd"].notes("route")
    assert route.startswith("two_level, since "), "the choice is recorded with its reason"
    for found in everyone:
        for name, one in found.items():
            torch.testing.assert_close(one.parameters, expected[name].parameters, rtol=0, atol=ROUNDING, msg=name)


def in_few_bits(rank: int, world_size: int) -> dict[str, Trained]:
    found = {}
    for kind in ("fp32", "bf16", "fp16"):
        one = overlapped("Wide", 2**-9, of={"bits": 32}, train={"steps": 8, "precision": kind})
        found[kind] = trained(rank, world_size, one, kind, disk=Quick())
    return found


def test_under_autocast_sums_are_applied_as_they_arrive_unless_a_scale_may_overflow(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = in_few_bits(0, 1)
    first, second = workers(2, in_few_bits)
    for kind, one in alone.items():
        assert first[kind].losses == pytest.approx(one.losses, abs=0.02 if kind != "fp32" else 1e-5)
        for name, parameter in first[kind].parameters.items():
            assert parameter.dtype is torch.float32
            assert torch.equal(parameter, second[kind].parameters[name])
    assert first["bf16"].losses != first["fp32"].losses
    assert first["bf16"].notes("update") == [CHUNK_BY_CHUNK]
    assert first["fp16"].notes("update") == ["together, since fp16 leaves an update out if any gradient overflowed"]


def use_late(rank: int, world_size: int, on: tuple[int, ...]) -> str:
    row_blocks.LARGE_BYTES = 2**13
    one = wide(use="beside", from_step=3, on=on)
    with pytest.raises((SettingError, PeerLost)) as refused:
        trained(rank, world_size, one)
    raise refused.value


@pytest.mark.parametrize("on", [(0, 1), (1,)])
def test_a_weight_used_outside_its_layer_later_on_is_refused_and_nobody_hangs(workers, on):
    with pytest.raises(SettingError) as refused:
        workers(2, use_late, on)
    assert str(refused.value).startswith("back.weight was used outside its layer for the first time in this step; ")


def die(rank: int, world_size: int) -> None:
    it = made(rank, world_size, wide(train={"steps": 1000}))
    forward = it.flow.module.back.forward

    def killed(inputs: torch.Tensor) -> torch.Tensor:
        if rank == 1 and it.recorder.step == 5:
            os._exit(7)
        result: torch.Tensor = forward(inputs)
        return result

    it.flow.module.back.forward = killed
    it.coordinator.rank.replica.start(it.coordinator.saver.late)
    try:
        with pytest.raises(PeerLost, match="the exchange broke: ") as lost:
            train(it)
    finally:
        it.replica.close()
    assert it.recorder.step in (5, 6)
    raise lost.value


def test_a_worker_that_dies_is_a_peer_lost_for_the_others_wherever_they_wait(workers):
    # its own end is told first; the others' would be, had they hung or raised anything but PeerLost
    with pytest.raises(Exception, match="rank 1 of 3 ended with 7"):
        workers(3, die, at_most_s=30)
