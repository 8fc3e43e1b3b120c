"""One checkpoint for all: ranks that keep all themselves, or servers, go on from what the others wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from _workers import joined
from train._served import served
from train._training import OVERLAPPED, Quick, Trained, looked_at, made, session, trained
from train.test_equal_workers import ROUNDING
from train.test_served import over
from train.test_served_rule import OPTIMIZERS, SAMPLES, Servers
from train.test_served_rule import served as with_servers
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.session.spec import Strategy
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
        for update in (stopped.coordinator.rank.network.update, resumed.coordinator.rank.network.update)
    ]
    assert states[0]
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    before, after = stopped.coordinator.rank.data.feed.state(), resumed.coordinator.rank.data.feed.state()
    assert after == before == before | {"epoch": 1, "position": 10}
    assert not looked_at(resumed).events("warning")


def test_samples_that_an_epochs_order_cannot_leave_out_are_told_of() -> None:
    left = {"epoch": 1, "ranges": [[0, 10, 20], [0, 25, SAMPLES]]}
    progress = {"closings": 9, "samples": 15, "left": left, "best": {"value": 0.5, "step": 3, "waited": 2}}
    _, resumed = written_by_servers("sgd", progress)
    feed, best = resumed.coordinator.rank.data.feed, resumed.coordinator.best
    assert (feed.epoch, feed.position, feed.step) == (0, 15, 1)
    assert (best.value, best.step, best.waited) == (0.5, 3, 2)
    (warning,) = looked_at(resumed).events("warning")
    assert warning["text"].startswith("5 samples are left out, and as many come twice")


def pictures(momentum: float) -> Session:
    if momentum == OF_OUTER:  # plain SGD on each worker, and its momentum in the outer rule
        return session("Pictures", optimizer={"name": "sgd", "lr": 0.2}, strategy={"consistency": OUTER, **OVERLAPPED})
    rule = {"name": "sgd", "lr": 0.2, "momentum": momentum}
    schedule, evaluate = {"name": "cosine", "warmup": 3}, {"every": "5 steps"}
    return session("Pictures", optimizer=rule, schedule=schedule, evaluate=evaluate, strategy=OVERLAPPED)


# (workers, servers, consistency) of four steps each; no servers: workers keep all themselves
EVERY_STEP = {"name": "local", "period": 1}  # with plain SGD that is bsp
OF_OUTER = 0.7
OUTER = {"name": "local", "period": 1, "outer": {"name": "sgd", "lr": 1.0, "momentum": OF_OUTER}}
SHARES = "sharded"  # bsp, and workers keep shares
WALKS: dict[float, list[tuple[int, int, Any]]] = {
    0.9: [(2, 0, "bsp"), (2, 1, "bsp"), (3, 0, "bsp"), (1, 2, "bsp")],
    0.0: [(1, 2, "bsp"), (3, 0, EVERY_STEP), (2, 1, EVERY_STEP), (2, 0, "bsp")],
    OF_OUTER: [(2, 0, OUTER), (3, 0, OUTER), (2, 1, OUTER), (1, 2, OUTER)],
    0.8: [(2, 0, SHARES), (2, 1, "bsp"), (3, 0, SHARES), (1, 2, "bsp")],
}


def walked(rank: int, world_size: int, momentum: float) -> Trained:
    """The last four of 20 steps, by three workers that keep all themselves, after those of its walk."""
    one, folder, quick = pictures(momentum), Path("runs/it/checkpoints"), Quick()
    if rank == 0:
        RunDirectory.create(Path("runs"), "it", "it", over(one, 2, 1).to_yaml(), quick)
    distributed.barrier()
    for number, (workers, servers, consistency) in enumerate(WALKS[momentum]):
        until = 4 * number + 4
        if servers:
            there = over(one, workers, servers, consistency)
            if rank == 0:
                RunDirectory(Path("runs/it")).session.write_text(there.to_yaml())
            distributed.barrier()
            served(rank, world_size, there, until={0: until})
            continue
        ranks = range(world_size)
        group = joined(100 + number).divided([ranks[:workers], *([other] for other in ranks[workers:])])
        if rank < workers:
            how = {"consistency": consistency, **OVERLAPPED}
            here = replace(one, strategy=Strategy(**({"partition": SHARES} if consistency == SHARES else how)))
            trained(rank, workers, here, folder, disk=quick, until=lambda step, end=until: step == end, group=group)
        distributed.barrier()
    return trained(rank, world_size, one, folder, disk=quick)


@pytest.mark.slow  # three processes, and five trainings each
@pytest.mark.parametrize("momentum", WALKS)
def test_a_run_goes_on_with_any_keepers_and_number_of_workers_as_if_it_had_not(workers: Any, momentum: float) -> None:
    one = pictures(momentum)
    if momentum == OF_OUTER:
        one = session("Pictures", optimizer={"name": "sgd", "lr": 0.2, "momentum": momentum})
    alone = trained(0, 1, one, disk=Quick())
    for there in workers(3, walked, momentum):
        assert there.rows[-1].step == 20
        assert len(there.rows) <= 4
        for name, values in alone.parameters.items():
            torch.testing.assert_close(there.parameters[name], values, rtol=0, atol=ROUNDING)
    folders = (Path(FOLDER), workers.folder / "1/runs/it/checkpoints")
    mine, theirs = (json.loads((Checkpoints(folder).path(20) / ROSTER).read_text()) for folder in folders)
    assert theirs == mine | {"best": pytest.approx(mine["best"])}
