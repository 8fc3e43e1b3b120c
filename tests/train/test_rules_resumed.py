"""Runs with every optimiser and with schedules in epochs: resumed bit for bit; and a rate that is scaled by workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from train._training import Quick, session, trained
from volary.session import Session
from volary.train.optimizers import ROOM

WARM = {"name": "constant", "warmup": "2 epochs"}  # of 5 steps each
CHAIN = {"name": "chain", "parts": [WARM, {"name": "restarts", "every": 2}, "one_cycle"], "steps": [4, 5]}
CYCLIC = {"name": "cyclic", "up": 3, "mode": "triangular2", "warmup": "1 epoch"}


def run(folder: str, steps: int, optimizer: Any, schedule: Any) -> dict[str, torch.Tensor]:
    one = session(
        "Exact",
        optimizer=optimizer,
        schedule=schedule,
        train={"steps": steps},
        checkpoint={"every": "7 steps"},
    )
    return trained(0, 1, one, folder, disk=Quick()).parameters


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [(name, "constant" if name == "rprop" else WARM) for name in ROOM.names()] + [("sgd", CYCLIC)],
    ids=lambda one: one if isinstance(one, str) else one["name"],
)
def test_a_run_that_was_stopped_within_the_schedule_goes_on_bit_for_bit(optimizer, schedule):
    whole = run("whole", 12, optimizer, schedule)
    before = run("stopped", 7, optimizer, schedule)
    after = run("stopped", 12, optimizer, schedule)
    assert all(torch.equal(after[name], values) for name, values in whole.items())
    assert not all(torch.equal(before[name], values) for name, values in whole.items())


def test_a_warm_up_in_epochs_trains_as_one_in_steps():
    in_epochs = run("epochs", 12, "sgd", CHAIN)
    parts = [{"name": "constant", "warmup": 10}, *CHAIN["parts"][1:]]
    in_steps = run("steps", 12, "sgd", {**CHAIN, "parts": parts})
    assert all(torch.equal(in_epochs[name], values) for name, values in in_steps.items())


def scaled(workers: int, lr: float, how: str) -> Session:
    train = {"steps": 12, "scale_lr": how}
    return session("Exact", optimizer={"name": "sgd", "lr": lr}, train=train, strategy={"workers": workers})


def run_scaled(rank: int, world_size: int) -> dict[str, torch.Tensor]:
    return trained(rank, world_size, scaled(world_size, 0.05, "linear"), "scaled", disk=Quick()).parameters


@pytest.mark.slow  # the factor is compared with the formula in test_schedules.py
def test_two_workers_with_a_scaled_rate_equal_one_with_twice_the_rate(workers):
    alone = trained(0, 1, scaled(1, 0.1, "linear"), "alone", disk=Quick()).parameters
    for found in workers(2, run_scaled):
        for name, values in alone.items():
            torch.testing.assert_close(found[name], values, rtol=0, atol=1e-11)
