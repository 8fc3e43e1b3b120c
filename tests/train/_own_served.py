"""A loop of a user's own over servers, by the ranks of a test: the first are workers, the others servers.

Rank 0 hosts the roster beside its work, as a run's driver does.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils.data import DataLoader, Dataset

from _workers import joined
from train._own_loops import network, points
from train._training import Quick
from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.groups.group import Group
from volary.driver.servers.checkpoint_drafts import CheckpointDrafts, restored
from volary.driver.servers.settings import roster_settings_of_loop
from volary.placement import Place
from volary.run.checkpoints import Checkpoints
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.resuming import is_resumable
from volary.server.roster.roster import Roster
from volary.session.script import Script
from volary.session.spec import Checkpoint
from volary.train.member.current_driver import CurrentDriver
from volary.train.member.process import Membership
from volary.train.own.served.loop import ServedLoop
from volary.train.own.served.loop_start import LoopStart
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.served.server.serve import serve
from volary.train.state.seeds import seed_all
from volary.train.state.weights import SavedWeights

EPOCHS, SAMPLES, BATCH = 4, 23, 4
Loop = Callable[[Any], Any]


@dataclass
class Looped:
    """A worker's result: the value of its loop, rows, messages. weights: as servers saved them; of rank 0 alone."""

    value: Any
    rows: list[Any]
    outcome: str | None = None
    said: list[tuple[str, int | None, dict[str, Any]]] = field(default_factory=list)
    worker_said: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


def own_served(
    rank: int, world_size: int, loop: Loop, strategy: dict[str, Any], name: str = "it", look: str = "never"
) -> Looped | None:
    """Call `loop(worker)` on each worker; None on servers. look: how often at weights, gradients and updates."""
    script = Script(function="a.py:loop", strategy={"exchange": "server", **strategy}, histograms=look)
    workers, store = script.strategy.workers, _get_default_store()
    peers = joined().divided([list(range(workers)), list(range(workers, world_size))])
    torch.set_num_threads(1)
    found: Looped | None = None
    if rank == 0:
        path = Path("runs") / name
        directory = (
            RunDirectory(path)
            if path.exists()
            else RunDirectory.create(Path("runs"), name, "it", script.to_yaml(), Quick())
        )
        with _hosted(directory, script) as (server, roster, said):
            store.set(f"meet {name}", json.dumps([*server.address, server.attempt_id]))
            found = _work(rank, script, directory, (*server.address, server.attempt_id), loop, peers)
            distributed.barrier()
        found.outcome, found.said = roster.outcome, said
        checkpoints = Checkpoints(directory.checkpoints)
        step = checkpoints.steps()[-1]
        saved = SavedWeights(checkpoints.path(step), checkpoints.manifest(step))
        found.weights = {one: saved.whole(one) for one in saved}
    else:
        where = tuple(json.loads(store.get(f"meet {name}")))
        directory = RunDirectory(Path("runs") / name)
        if rank < workers:
            found = _work(rank, script, directory, where, loop, peers)
        else:
            serve(directory, rank - workers, where[:2], where[2], "127.0.0.1")
        distributed.barrier()
    store.delete_key(f"meet {name}")
    distributed.barrier()
    return found


def _work(
    rank: int, script: Script, directory: RunDirectory, where: tuple[str, int, str], loop: Loop, peers: Group
) -> Looped:
    host, port, attempt_id = where
    size = script.strategy.workers
    place = Place(
        launcher="test", rank=rank, world_size=size, local_rank=rank, node=0, attempt=1, meet=f"{host}:{port}"
    )
    connection: Any = SimpleNamespace()
    driver = CurrentDriver(Meeting(host, port, 1, attempt_id))
    member = Membership(place=place, directory=directory, driver=driver, connection=connection, give_up_after_s=10)
    recorder, pulse, device = Recorder(rank), SimpleNamespace(asked_to_end=False), torch.device("cpu")
    multiprocessing.current_process()._config["daemon"] = False  # a loader may have processes, as in a run's worker
    seed_all(1)
    served: Any = ServedLoop(LoopStart(script, member, recorder, pulse, device, {}), lambda: nullcontext(peers))
    with closing(Worker(served, script, recorder, device, rank)) as worker:
        value = loop(worker)
        worker.finish()
    return Looped(value, list(recorder.rows), worker_said=list(recorder.events))


@contextmanager
def _hosted(directory: RunDirectory, script: Script) -> Iterator[tuple[KeyedServer, Roster, list[Any]]]:
    said: list[Any] = []
    strategy = script.strategy
    servers = strategy.servers
    checkpoints = Checkpoints(directory.checkpoints, Quick())
    keeping = CheckpointDrafts(checkpoints, Checkpoint(), servers)
    with closing(Journal(directory.database)) as journal:
        found = restored(checkpoints, journal) if is_resumable(directory) else None
    terms = roster_settings_of_loop(strategy)
    roster = Roster(terms, strategy.consistency, keeping, lambda *what: said.append(what), found)
    with KeyedServer(directory.key(), {"roster": roster, "board": Board()}) as server:
        yield server, roster, said
    keeping.close()


def scheduled(worker: Any, optimizer: Any = None, data: Any = None) -> dict[str, Any]:
    """Two groups with rates of their own, which a scheduler changes; what a worker begins with is its own."""
    model = network()
    with torch.no_grad():
        model[0].weight.add_(worker.rank)
    groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[2].parameters(), "lr": 0.05}]
    made = optimizer(groups) if optimizer else torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(made, 5, 0.5)
    model, made = worker.distribute(model, made)
    feed = worker.feed(points(SAMPLES) if data is None else data, **({} if data else {"batch_size": BATCH}))
    whole, measured, seen = points(SAMPLES), [], []
    for _ in range(EPOCHS):
        seen.append(0)
        for inputs, targets in feed:
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            made.step()
            schedule.step()
            seen[-1] += len(inputs)
        with torch.no_grad():
            measured.append(float(nn.functional.cross_entropy(model(whole.tensors[0]), whole.tensors[1])))
    return {"state": model.state_dict(), "measured": measured, "seen": seen, "steps": len(feed)}


def adam(worker: Any) -> dict[str, Any]:
    """Over a loader, of batches in a mapping."""
    loader = DataLoader(points(SAMPLES), BATCH, shuffle=True)
    return scheduled(worker, lambda groups: torch.optim.AdamW(groups, betas=(0.8, 0.99)), loader)


def by_processes(worker: Any) -> dict[str, Any]:
    """Over a loader that reads with a process of its own."""
    return scheduled(worker, data=loader_of(points(SAMPLES), 1))


def loader_of(data: Any, processes: int) -> DataLoader[Any]:
    """A shuffled loader with so many processes, which begin as they do in a run's worker."""
    how = {"multiprocessing_context": "fork"} if processes else {}
    return DataLoader(data, BATCH, shuffle=True, num_workers=processes, **how)


def bounded(worker: Any, staleness: int = 2, steps: int = 6) -> list[int]:
    """How far rank 0 was ahead of rank 1 when it began each batch, which holds until rank 0 is as far as it may be."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    begun, ahead = Path(f"begun-{worker.rank}"), []

    def of(rank: int) -> int:
        return len(Path(f"begun-{rank}").read_bytes()) if Path(f"begun-{rank}").exists() else 0

    for inputs, targets in worker.feed(points(400), batch_size=8):
        own = of(worker.rank) + 1
        with begun.open("ab") as file:
            file.write(b".")
        if worker.rank == 0:
            ahead.append(own - of(1))
        until = time.monotonic() + 60
        while worker.rank == 1 and own <= steps and of(0) < own + staleness:
            assert time.monotonic() < until
            time.sleep(0.005)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return ahead


def finding_out(worker: Any) -> dict[str, Any]:
    """Figures that workers find together in 3 epochs of 25 samples; one worker alone has the last batch."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    feed = worker.feed(points(25), batch_size=BATCH, shuffle=False)
    held_out, losses, figures, lengths = DataLoader(points(7), batch_size=4), [], [], []
    for _ in range(3):
        for inputs, targets in feed:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(float(worker.mean(loss.detach())))
        figures.append(worker.evaluate(partial(judged, model), held_out))
        lengths.append(worker.gather(len(losses)))
        worker.barrier()
    assert model.training
    return {"losses": losses, "figures": figures, "lengths": lengths, "sum": worker.sum(torch.ones(2)).tolist()}


def judged(model: nn.Module, batch: Any) -> dict[str, Any]:
    """Loss and accuracy of a batch."""
    assert not model.training
    outputs = model(batch[0])
    right = (outputs.argmax(1) == batch[1]).double().mean()
    return {"loss": nn.functional.cross_entropy(outputs, batch[1]), "accuracy": right}


class Noisy(Dataset[Any]):
    """Samples that are augmented at random, in the process that reads them."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        x, y = points(SAMPLES)[index]
        return x.float() + 0.1 * torch.randn(x.shape), y


def kept(worker: Any, every: int = 4, leave: int = -1, processes: int = 0) -> dict[str, Any]:
    """Three epochs of 6 steps; saves each `every` steps and after epochs, and ends with the save of step `leave`.

    processes: that read the samples, and augment them.
    """
    torch.manual_seed(7 + worker.rank)
    layers = [nn.Linear(5, 64), nn.BatchNorm1d(64), nn.Dropout(0.3), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 3)]
    model = nn.Sequential(*layers)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    named = {"model": model, "optimizer": optimizer, "schedule": schedule}
    steps = worker.restore(**named, steps=0)["steps"]
    begun, seen = torch.cat([one.flatten() for one in model.state_dict().values()]), []
    feed = worker.feed(loader_of(Noisy(), processes))
    for epoch in worker.epochs(3):
        for inputs, labels in feed:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            steps += 1
            seen.append((epoch, steps, len(inputs)))
            if steps % every == 0:
                worker.save(**named, steps=steps)
            if steps == leave:
                return {"seen": seen}
        schedule.step()
        worker.save(**named, steps=steps)
        if steps == -leave:
            return {"seen": seen}
    last = {name: one.clone() for name, one in model.state_dict().items()}
    return {"last": last, "seen": seen, "lr": optimizer.param_groups[0]["lr"], "drawn": torch.rand(3), "begun": begun}


def judging_alone(worker: Any) -> list[Any]:
    """Each measures as it goes, whether or not the others do."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    found = []
    for inputs, targets in worker.feed(points(SAMPLES), batch_size=BATCH):
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if worker.is_first:
            found.append(worker.evaluate(partial(judged, model), DataLoader(points(7), batch_size=4)))
    try:
        worker.mean(1.0)
    except Exception as error:
        found.append(str(error))
    return found
