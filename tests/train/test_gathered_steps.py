"""Workers that gather parameters: their work between steps, and checkpoints that they give and take."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from _workers import joined
from train._training import Quick, Trained, assert_parameters, session, trained
from train.test_equal_workers import ROUNDING, RULES
from train.test_gathered import in_small_units
from train.test_histograms import histograms
from train.test_sharded import FORTY, LEVEL_2, LEVEL_3, RING, SHARED, stepwise
from train.test_sharded_steps import looked_at_often

GATHERS = {"partition": LEVEL_3, "exchange": RING}


def look_often(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    in_small_units()
    return trained(rank, world_size, looked_at_often(strategy), "often", disk=Quick())


def test_evaluations_histograms_and_saves_between_steps_leave_all_as_on_one_device(workers):
    alone = look_often(0, 1, {})
    first, second = everyone = workers(2, look_often, GATHERS)
    for found in everyone:
        assert (found.outcome, len(found.rows)) == ("finished", 13)
        assert found.losses == pytest.approx(alone.losses, abs=1e-6)
        for name, expected in alone.parameters.items():
            torch.testing.assert_close(found.parameters[name], expected, rtol=0, atol=ROUNDING)
    assert [step for step, _ in first.metrics] == [step for step, _ in alone.metrics] == [3, 6, 9, 12, 13]
    for (_, found), (_, expected) in zip(first.metrics, alone.metrics, strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert (second.metrics, histograms(second)) == ([], {})
    assert {kind for kind, _ in histograms(first)[4]} == {"weight", "update", "gradient"}


def interrupted(rank: int, world_size: int) -> list[Trained]:
    """Results of a training without a stop, and of one that continues from its own checkpoint after 6 steps."""
    in_small_units()
    whole = trained(rank, world_size, stepwise(GATHERS), "whole", disk=Quick())
    trained(rank, world_size, stepwise(GATHERS), "halves", disk=Quick(), until=lambda step: step == 6)
    return [whole, trained(rank, world_size, stepwise(GATHERS), "halves", disk=Quick())]


def test_as_many_workers_continue_bit_for_bit(workers):
    for whole, resumed in workers(2, interrupted):
        assert resumed.outcome == "finished" and len(resumed.rows) == 6
        for parameter, values in whole.parameters.items():
            assert torch.equal(resumed.parameters[parameter], values), parameter


OTHERS: dict[str, dict[str, Any]] = {
    "gathered": GATHERS,
    "gathered, in shared memory": {"partition": LEVEL_3, "exchange": SHARED},
    "level 2": {"partition": LEVEL_2, "exchange": RING},
    "whole": {"partition": "data", "exchange": {"name": "allreduce", "route": "torch"}},
}
WAYS = [("gathered", name) for name in OTHERS] + [(name, "gathered") for name in list(OTHERS)[1:]]


def left_after_6(rank: int, world_size: int, folder: str) -> None:
    in_small_units()
    for name, strategy in OTHERS.items():
        one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=strategy)
        trained(rank, world_size, one, f"{folder}/{name}", disk=Quick(), until=lambda step: step == 6)


def go_on(rank: int, world_size: int, folder: str) -> dict[tuple[str, str], Trained]:
    """By who wrote and who reads: what comes of it."""
    in_small_units()
    found = {}
    for written, name in WAYS:
        copied = f"{folder}/{written} to {name} of {world_size}"
        if rank == 0:
            shutil.copytree(f"{folder}/{written}", copied, dirs_exist_ok=True)
        joined().bulletin.share(f"copied {copied}", 1) if world_size > 1 else None
        one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=OTHERS[name])
        found[written, name] = trained(rank, world_size, one, copied, disk=Quick())
    return found


@pytest.mark.slow  # test_tensor.py goes on from other cuts
def test_other_numbers_of_workers_other_levels_and_replicas_continue_from_shares_and_these_from_them(workers, tmp_path):
    folder = str(tmp_path / "left")
    Path(folder).mkdir()
    alone = trained(0, 1, session("Exact", source=FORTY, optimizer=RULES["adam"]), f"{folder}/alone", disk=Quick())
    workers(2, left_after_6, folder)
    files = {file.name for file in Path(folder, "gathered").glob("*/model*.safetensors")}
    assert files == {"model-worker-0.safetensors", "model-worker-1.safetensors"}, "each writes what it keeps"
    for world_size in (3, 1):
        everyone = workers(world_size, go_on, folder) if world_size > 1 else [go_on(0, 1, folder)]
        for way, found in everyone[0].items():
            assert len(found.rows) == 14
            assert_parameters(found, alone, ROUNDING, (world_size, way))
