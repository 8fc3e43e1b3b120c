"""Trainings of a network with two matrices worth encoding, stopped and resumed."""

from __future__ import annotations

from typing import Any

import torch

from train._training import Quick, Trained, session, trained
from volary.session import Session

SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}


def wide(
    bits: int = 32, steps: int = 12, checkpoint: str = "3 steps", histograms: str = "never", **strategy: Any
) -> Session:
    """Two matrices of 2048 values, each in a bucket of its own, in torch's route although it is one machine."""
    exchange = {"name": "allreduce", "route": "torch", **strategy.pop("exchange", {})}
    return session(
        "Wide",
        of={"bits": bits},
        source={"name": "points", "samples": 44},
        optimizer=SGD,
        train={"steps": steps, "histograms": histograms},
        checkpoint={"every": checkpoint, "keep_last": 9},
        strategy={"exchange": exchange, "bucket_mb": 5e-3, **strategy},
    )


def quickly(rank: int, world_size: int, one: Session, folder: str, **more: Any) -> Trained:
    return trained(rank, world_size, one, folder, disk=Quick(), **more)


def sent(found: Trained) -> list[int]:
    """Bytes by step; those that leave as a step ends may count for the next one, so that sums tell more than one."""
    return [row.sent_bytes for row in found.rows]


def stop_and_resume(
    rank: int, world_size: int, sessions: dict[str, Session], after: int = 7
) -> dict[str, list[Trained]]:
    found = {}
    for name, one in sessions.items():
        whole = quickly(rank, world_size, one, f"{name}-whole")
        stopped = quickly(rank, world_size, one, f"{name}-stopped", until=lambda step: step == after)
        found[name] = [whole, stopped, quickly(rank, world_size, one, f"{name}-stopped")]
    return found


def assert_resumed_equals_whole(everyone: list[dict[str, list[Trained]]]) -> None:
    for found in everyone:
        for name, (whole, stopped, resumed) in found.items():
            assert [row.loss for row in stopped.rows + resumed.rows] == whole.losses, name
            for parameter, values in whole.parameters.items():
                assert torch.equal(values, resumed.parameters[parameter]), (name, parameter)
                assert torch.equal(values, everyone[0][name][0].parameters[parameter]), "replicas are equal"
