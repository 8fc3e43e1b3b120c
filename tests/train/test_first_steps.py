"""A worker reports its first steps and the files that it writes, and its driver compares them with the others'."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from train._own_loops import network, points
from train._own_served import own_served
from train.test_own_loop import call
from volary.train.own.first_steps import STEPS
from volary.train.own.startup.written_files import watched
from volary.train.recording.recorder import Recorder


def said_of_first_steps(said: Any) -> list[Any]:
    return [one for one in said if "losses" in one]


def loop(worker: Any, kind: str) -> None:
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = DataLoader(points(), batch_size=4, shuffle=True)
    if kind == "seeded":
        torch.manual_seed(worker.rank)
    for inputs, labels in loader if kind == "forgotten" else worker.feed(loader):
        if kind in ("noise", "seeded"):
            inputs = inputs + torch.randn_like(inputs)
        if kind == "numpy":
            inputs = inputs + float(np.random.rand()) + random.random()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


KINDS = ["forgotten", "fed", "noise", "numpy", "seeded"]


def all_kinds(rank: int, world_size: int) -> dict[str, Any]:
    found = {}
    for attempt, kind in enumerate(KINDS):
        _, recorder = call(lambda worker, kind=kind: loop(worker, kind), rank, world_size, attempt)
        (found[kind],) = said_of_first_steps(recorder.events)
    return found


def test_losses_tell_a_forgotten_feed_and_generators_tell_noise_that_is_the_same_on_all_workers(workers):
    first, second = workers(2, all_kinds)
    assert len(first["forgotten"]["losses"]) == STEPS
    assert first["forgotten"]["losses"] == second["forgotten"]["losses"]
    for kind in ("fed", "noise", "numpy", "seeded"):
        assert first[kind]["losses"] == [], "whoever is fed learns from something else"
    assert (first["fed"]["drawn"], first["forgotten"]["drawn"]) == ({}, {})
    assert first["noise"]["drawn"] == second["noise"]["drawn"]
    assert [*first["noise"]["drawn"]] == ["torch"]
    assert first["numpy"]["drawn"] == second["numpy"]["drawn"]
    assert [*first["numpy"]["drawn"]] == ["numpy", "random"]
    assert [*first["seeded"]["drawn"]] == ["torch"]
    assert first["seeded"]["drawn"] != second["seeded"]["drawn"]


def noisy_over_servers(rank: int, world_size: int) -> Any:
    return own_served(rank, world_size, lambda worker: loop(worker, "noise"), {"workers": world_size - 1})


def test_over_servers_the_same_noise_is_seen_too(workers):
    first, second, _ = workers(3, noisy_over_servers)
    (one,), (other,) = said_of_first_steps(first.worker_said), said_of_first_steps(second.worker_said)
    assert one == other
    assert [*one["drawn"]] == ["torch"]


def test_a_world_of_one_says_nothing_of_its_first_steps():
    _, recorder = call(lambda worker: loop(worker, "noise"), 0, 1, 0)
    assert said_of_first_steps(recorder.events) == []


def write_all_kinds() -> list[str]:
    """Files of names that say how they are written."""
    Path("plain.txt").write_text("x")
    with open("added.txt", "a") as file:  # noqa: PTH123
        file.write("x")
    os.close(os.open("low.bin", os.O_WRONLY | os.O_CREAT))
    np.save("array.npy", np.zeros(2))
    torch.save({}, "saved.pt")
    torch.save({}, Path("path.pt"))
    Path("logs").mkdir()
    Path("logs/events.out.tfevents.17.here.3").touch()
    return ["added.txt", "array.npy", "logs", "low.bin", "path.pt", "plain.txt", "saved.pt"]


def test_each_file_is_said_once_that_the_users_code_writes_and_none_that_it_reads(tmp_path):
    recorder, run = Recorder(0), tmp_path / "runs" / "it"
    run.mkdir(parents=True)
    save = torch.save
    with watched(recorder, run):
        written = write_all_kinds()
        Path("plain.txt").write_text("again")
        Path("plain.txt").read_text()
        torch.save({}, io.BytesIO())
        torch.load("saved.pt")
        (run / "result.pt").write_text("the run's own")
        Path(os.devnull).write_text("nobody's")
        with pytest.raises(FileNotFoundError):
            Path("absent/file").write_text("x")
    Path("later.txt").write_text("x")
    assert torch.save is save
    said = [one for one in recorder.events if "writes" in one]
    assert sorted(one["writes"] for one in said if "absent" not in one["writes"]) == [
        str(tmp_path / name) for name in written
    ]
    assert all(one["place"].startswith(f"{__file__}:") for one in said)
