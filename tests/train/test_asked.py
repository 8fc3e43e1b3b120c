"""All ranks carry out a request to a training run after the same step, and a resumed run knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from train._training import OVERLAPPED, Quick, Trained, session, trained
from volary.run.checkpoints import Checkpoints
from volary.run.control.requests import ChangeRate, WriteCheckpoint

IN_PIECES = {**OVERLAPPED, "bucket_mb": 1e-4}
LOCAL = {"consistency": {"name": "local", "period": 2}}


def points(lr: float, strategy: dict[str, Any]) -> Any:
    train = {"steps": 12}
    return session("Exact", optimizer={"name": "adam", "lr": lr}, train=train, strategy=strategy)


def asked(step: int) -> list[Any]:
    """A checkpoint from step 3 on, another learning rate from step 6 on."""
    requests = [WriteCheckpoint()] * (step >= 3) + [ChangeRate(0.005)] * (step >= 6)
    return [msgspec.to_builtins(one) for one in requests]


def ask_and_resume(rank: int, world_size: int, strategy: dict[str, Any]) -> tuple[Trained, Trained, Trained, list[int]]:
    """One that goes on to its end, and one that is stopped after the change and resumed."""
    one = points(0.02, strategy)
    told = asked if rank == 0 else lambda _: []  # others hear it later, or never
    whole = trained(rank, world_size, one, "whole", disk=Quick(), asked=told)
    stopped = trained(
        rank,
        world_size,
        one,
        "stopped",
        disk=Quick(),
        asked=told,
        until=lambda step: rank == world_size - 1 and step > 7,
    )
    resumed = trained(rank, world_size, points(0.005, strategy), "stopped", disk=Quick())
    return whole, stopped, resumed, Checkpoints(Path("whole")).steps()


@pytest.mark.parametrize(("world_size", "strategy"), [(1, {}), (2, IN_PIECES), (2, LOCAL)])
def test_a_changed_learning_rate_holds_from_one_step_on_and_a_resumed_run_has_it(workers, world_size, strategy):
    for rank, (whole, stopped, resumed, steps) in enumerate(workers(world_size, ask_and_resume, strategy)):
        rates = [row.lr for row in whole.rows]
        held = rates.index(0.005)
        assert held in (6, 7), "after the step that was being done, or the period"
        assert rates == [0.02] * held + [0.005] * (12 - held)
        rows = [row for row in stopped.rows + resumed.rows if row.samples]  # a share without samples updates nothing
        assert [row.lr for row in rows] == [row.lr for row in whole.rows if row.samples]
        change = {"setting": "optimizer.lr", "was": 0.02, "now": 0.005}
        assert whole.events("changed") == ([change] if rank == 0 else [])
        assert held in steps, "with a checkpoint, from which a resumed run begins"
        assert 3 in steps or 4 in steps
        for name, parameter in whole.parameters.items():
            assert torch.equal(parameter, resumed.parameters[name])
