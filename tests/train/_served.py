"""A session with parameter servers, trained by the ranks of a test: the first are workers, the others servers.

Rank 0 hosts the roster beside its work, as a run's driver does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import _get_default_store

from _workers import joined
from train._training import Quick
from volary.comm.control.server import KeyedServer
from volary.comm.groups.group import Group
from volary.driver.servers.checkpoint_drafts import CheckpointDrafts, restored
from volary.driver.servers.settings import roster_settings
from volary.placement import Place
from volary.run.checkpoints import Checkpoints
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.server.roster.replica_ranks import ReplicaRanks
from volary.server.roster.roster import Roster
from volary.session import Session
from volary.train.afterwards import load_model
from volary.train.member.current_driver import CurrentDriver
from volary.train.member.process import Membership
from volary.train.recording.recorder import Recorder
from volary.train.served.server.serve import serve
from volary.train.worker import served_part
from volary.train.worker.served_session import run_served


@dataclass
class Kept:
    """The servers' values at the end, as rank 0 finds them in the last checkpoint.

    said: of the roster, by kind. rows: of this rank.
    """

    outcome: str
    rows: list[Any]
    worker_said: list[dict[str, Any]]
    said: list[tuple[str, int | None, dict[str, Any]]] = field(default_factory=list)
    run_outcome: str | None = None
    parameters: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)

    def told(self, kind: str) -> list[dict[str, Any]]:
        """All that the roster said of a kind."""
        return [data for one, _, data in self.said if one == kind]

    @property
    def losses(self) -> list[float]:
        """The losses of every step of this rank."""
        return [row.loss for row in self.rows]


class Until:
    """A pulse of which a worker asks whether it is to end; it is, after so many steps."""

    def __init__(self, recorder: Recorder, steps: int | None) -> None:
        self._recorder, self._steps = recorder, steps

    @property
    def asked_to_end(self) -> bool:
        return self._steps is not None and self._recorder.step >= self._steps


def served(
    rank: int, world_size: int, session: Session, name: str = "it", until: dict[int, int] | None = None
) -> Kept | None:
    """Train a session from its beginning, or from the newest checkpoint in the run `name`; None on servers.

    until: by rank, steps after which it is asked to end. After a thaw it goes on, as a run's driver does.
    """
    store = _get_default_store()
    while True:
        found = _attempt(rank, world_size, session, name, until)
        if rank == 0:
            assert found is not None
            store.set(f"ended {name}", str(found.run_outcome))
        distributed.barrier()
        ended = store.get(f"ended {name}").decode()
        distributed.barrier()
        if ended != "thawed":
            return found


def _attempt(rank: int, world_size: int, session: Session, name: str, until: dict[int, int] | None) -> Kept | None:
    workers = session.strategy.workers
    store, replicas = _get_default_store(), _replicas(session, world_size)
    found: Kept | None = None
    if rank == 0:
        path = Path("runs") / name
        directory = (
            RunDirectory(path)
            if path.exists()
            else RunDirectory.create(Path("runs"), name, "it", session.to_yaml(), Quick())
        )
        with _hosted(directory, session) as (server, roster, said):
            store.set(f"meet {name}", json.dumps([*server.address, server.attempt_id]))
            found = _work(rank, session, directory, (*server.address, server.attempt_id), until, replicas)
            distributed.barrier()
        found.said, found.steps = said, Checkpoints(directory.checkpoints).steps()
        found.run_outcome = roster.outcome
        module = load_model(directory, found.steps[-1]).module
        found.parameters = {one: tensor.detach().clone() for one, tensor in module.named_parameters()}
        found.buffers = {one: tensor.clone() for one, tensor in module.named_buffers()}
    else:
        where = tuple(json.loads(store.get(f"meet {name}")))
        directory = RunDirectory(Path("runs") / name)
        if rank < workers:
            found = _work(rank, session, directory, where, until, replicas)
        else:
            serve(directory, rank - workers, where[:2], where[2], "127.0.0.1")
        distributed.barrier()
    store.delete_key(f"meet {name}")
    distributed.barrier()
    return found


def _replicas(session: Session, world_size: int) -> Group | None:
    """The group that holds a replica with this rank; None: it holds one alone. A collective call."""
    workers, each = session.strategy.workers, session.strategy.ranks_each
    return _divided(workers, each, world_size) if each > 1 else None


@cache
def _divided(workers: int, each: int, world_size: int) -> Group:
    replicas = [list(range(first, first + each)) for first in range(0, workers, each)]
    return joined().divided([*replicas, *([rank] for rank in range(workers, world_size))])


def _work(
    rank: int,
    session: Session,
    directory: RunDirectory,
    where: tuple[str, int, str],
    until: dict[int, int] | None,
    replica: Group | None,
) -> Kept:
    host, port, attempt = where
    place = Place(
        launcher="test",
        rank=rank,
        world_size=session.strategy.workers,
        local_rank=rank,
        node=0,
        attempt=1,
        meet=f"{host}:{port}",
    )
    member = Membership(
        place=place,
        directory=directory,
        driver=CurrentDriver(Meeting(host, port, 1, attempt)),
        connection=SimpleNamespace(),
        give_up_after_s=10,
    )
    recorder = Recorder(rank)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as here:
        if replica is not None:  # these processes have met: torch has its default group
            here.setattr(served_part, "joined", lambda *_, **__: nullcontext(replica))
        outcome = run_served(session, member, recorder, Until(recorder, (until or {}).get(rank)))
    return Kept(outcome, list(recorder.rows), list(recorder.events))


@contextmanager
def _hosted(directory: RunDirectory, session: Session) -> Iterator[tuple[KeyedServer, Roster, list[Any]]]:
    checkpoints, said = Checkpoints(directory.checkpoints, Quick()), []
    journal = Journal(directory.database)
    strategy = session.strategy
    keeping = CheckpointDrafts(checkpoints, session.checkpoint, strategy.servers)
    found = restored(checkpoints, journal)
    settings = roster_settings(session)
    roster = Roster(settings, strategy.consistency, keeping, lambda *what: said.append(what), found)
    members = roster if settings.each == 1 else ReplicaRanks(roster, settings.each)
    try:
        with KeyedServer(directory.key(), {"roster": members}) as server:
            yield server, roster, said
    finally:
        keeping.close()
        journal.close()
