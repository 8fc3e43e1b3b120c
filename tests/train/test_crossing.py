"""One checkpoint for all: ranks that keep all themselves, or servers, go on from what the others wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from train._served import served
from train._training import OVERLAPPED, Quick, Trained, looked_at, made, session, trained
from train.test_equal_workers import ROUNDING
from train.test_served import over
from train.test_served_rule import OPTIMIZERS, SAMPLES, Servers
from train.test_served_rule import served as with_servers
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.run.directory import RunDirectory
from volary.train.loop import Training, train
from volary.train.state.weights import weights_of

FOLDER = "checkpoints"


def written_by_servers(optimizer: str, progress: dict[str, Any] | None = None) -> tuple[Training, Training]:
    """A training that stopped after 6 steps, and one that resumes what servers wrote which had resumed that."""
    one = session("Pictures", optimizer=OPTIMIZERS[optimizer])
    stopped = made(0, 1, one, disk=Quick(), until=lambda step: step == 6)
    train(stopped)
    servers = Servers(with_servers(optimizer=OPTIMIZERS[optimizer]), 3, Path(FOLDER), restore=6, applied=6)
    for name, values in servers.values().items():
        expected = dict(stopped.flow.module.named_parameters())[name]
        assert torch.equal(values, expected.detach().as_strided((expected.numel(),), (1,)))
    checkpoints = servers.checkpoints
    told = (checkpoints.path(6) / ROSTER).read_bytes() if progress is None else json.dumps(progress).encode()
    servers.keep(1)
    servers.save(7, 1, told)
    resumed = made(0, 1, one, disk=Quick())
    assert resumed.coordinator.saver.resume() is not None
    return stopped, resumed


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "own, whole"])
def test_what_ranks_wrote_comes_back_from_servers_bit_for_bit(optimizer: str) -> None:
    stopped, resumed = written_by_servers(optimizer)
    for name, values in weights_of(stopped.flow.module).items():
        assert torch.equal(weights_of(resumed.flow.module)[name], values)
    states = [
        {(name, start, end): [each, whole] for name, start, end, each, whole in update.state()}
        for update in (stopped.coordinator.update, resumed.coordinator.update)
    ]
    assert states[0]
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    before, after = stopped.coordinator.feed.state(), resumed.coordinator.feed.state()
    assert after == before == before | {"epoch": 1, "position": 10}
    assert not looked_at(resumed).events("warning")


def test_samples_that_an_epochs_order_cannot_leave_out_are_told_of() -> None:
    left = {"epoch": 1, "ranges": [[0, 10, 20], [0, 25, SAMPLES]]}
    progress = {"closings": 9, "samples": 15, "left": left, "best": {"value": 0.5, "step": 3, "waited": 2}}
    _, resumed = written_by_servers("sgd", progress)
    feed, best = resumed.coordinator.feed, resumed.coordinator.best
    assert (feed.epoch, feed.position, feed.step) == (0, 15, 1)
    assert (best.value, best.step, best.waited) == (0.5, 3, 2)
    (warning,) = looked_at(resumed).events("warning")
    assert warning["text"].startswith("5 samples are left out, and as many come twice")


def pictures() -> Any:
    rule = {"name": "sgd", "lr": 0.2, "momentum": 0.9}
    schedule, evaluate = {"name": "cosine", "warmup": 3}, {"every": "5 steps"}
    return session("Pictures", optimizer=rule, schedule=schedule, evaluate=evaluate, strategy=OVERLAPPED)


def there_and_back(rank: int, world_size: int) -> Trained:
    one, folder = pictures(), Path("runs/it/checkpoints")
    if rank == 0:
        RunDirectory.create(Path("runs"), "it", "it", over(one, 2, 1).to_yaml(), Quick())
    distributed.barrier()
    trained(rank, world_size, one, folder, disk=Quick(), until=lambda step: step == 7)
    served(rank, world_size, over(one, 2, 1), until={0: 14})
    return trained(rank, world_size, one, folder, disk=Quick())


@pytest.mark.slow  # three processes, and three trainings
def test_a_run_goes_on_over_servers_and_back_as_if_it_had_not(workers: Any) -> None:
    alone = trained(0, 1, pictures(), disk=Quick())
    everyone = workers(3, there_and_back)
    for there in everyone:
        assert 1 <= len(there.rows) < 7
        for name, values in alone.parameters.items():
            torch.testing.assert_close(there.parameters[name], values, rtol=0, atol=ROUNDING)
    folders = (Path(FOLDER), workers.folder / "1/runs/it/checkpoints")
    mine, theirs = (json.loads((Checkpoints(folder).path(20) / ROSTER).read_text()) for folder in folders)
    assert theirs == mine | {"best": pytest.approx(mine["best"])}
