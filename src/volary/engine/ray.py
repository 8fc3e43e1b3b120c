"""Ray: an actor for each process, in a placement group of a cluster that runs, or of one that is started here.

The address of a cluster's job server instead of its head: the run is a job there, which waits for its places.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from volary.actors.cluster import ActorSettings, scratch
from volary.actors.job import ADDRESS, HELD, JOB
from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.launchers import ray_jobs
from volary.engine.launchers.commands import answer_of, last_line
from volary.engine.launchers.launched import Launched, variables_for
from volary.engine.launchers.queue import BatchJob, JobState
from volary.engine.local import LOOPBACK, LocalEngine
from volary.engine.remote.bring import missing, require_below
from volary.errors import SettingError
from volary.run.machine.addresses import address_towards

ACTORS = [sys.executable, "-m", "volary.actors"]
HOLDER = [sys.executable, "-m", "volary.actors.job"]
CONNECT_S = 3.0  # to a cluster's head


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Workers and servers are below actors of Ray. A cluster that is started here has its workers alone."""

    address: str = ""  # host:port of a cluster's head, or http://host:port of its job server; empty: one started here
    cpus: float = 1  # of Ray's CPUs that each worker takes
    gpus: float = 0  # of Ray's GPUs that each worker takes
    spread: bool = False  # over as many nodes as there are; default: as few as hold all
    bring: tuple[str, ...] = ()  # folders or files below the working directory that Ray copies to the cluster's nodes
    pin: bool = True  # each worker stays on its own share of the cores of its machine
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        if self.address and not (self._submits or _parted(self.address)[1].isdecimal()):
            raise SettingError(
                f"address is {self.address!r}; accepted: host:port of a cluster's head, as alpha:6379, or of its job "
                "server, as http://alpha:8265"
            )
        if self.cpus < 0 or self.gpus < 0:
            raise SettingError(f"cpus is {self.cpus} and gpus {self.gpus}; accepted: 0 or more")
        require_below(self.bring)
        if self.bring and not self.address:
            raise SettingError(
                "bring is for a cluster that runs (address); one that is started here has all that is here"
            )

    def check(self, workers: int) -> str | None:
        """Ray must be installed, and the cluster there and large enough, or this machine's memory.

        For a job only its server must be there: it needs no Ray here, and holds its places before it is begun.
        """
        if self.queues():
            return ray_jobs.refusal(self.address) or self._too_many(workers, ray_jobs.resources(self.address))
        if find_spec("ray") is None:
            return "Ray is not installed here: pip install 'volary[ray]'"
        if (reason := missing(self.bring)) is not None:
            return reason
        if HELD in os.environ:
            return None
        return self._lacks(workers) if self.address else LocalEngine().check(workers)

    def warnings(self, workers: int) -> list[str]:
        """Warnings about this machine; Ray judges what others have."""
        return [] if self.address else LocalEngine().warnings(workers)

    def host(self) -> str:
        """This machine's address on the route to the cluster's head; loopback where it is started here."""
        return address_towards(_parted(self._head)[0]) if self.address else LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The command of the process that is Ray's driver, for all of them."""
        log = str(launch.directory.logs / f"ray-{launch.role}s.log")
        place = 0 if launch.role == "worker" else launch.beside
        held = os.environ.get(HELD, "") if self._submits else ""
        asked = self._settings(launch.count, self._head, log=log, held=held, first=place if held else 0)
        return [*ACTORS, asked.words(), *launch.command]

    def prepare(self, workers: int) -> None:
        """Do nothing: Ray starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Start them by one placement group. Servers beside a cluster that is started here are started without it."""
        if launch.role == "server" and not self.address:
            return LocalEngine().launch(launch)
        variables = variables_for(launch, pin=self.pin) | ({} if self.address else _guarded())
        return Launched("ray", launch, self.command(launch), variables, leaves=lambda pid: [scratch(pid)])

    def queues(self) -> bool:
        return self._submits and JOB not in os.environ

    def batch_file(self, batch: BatchJob) -> str:
        held = self._settings(batch.workers + batch.servers, "auto")
        return ray_jobs.text(batch, [*HOLDER, held.words(), str(batch.directory.path)])

    def submit(self, file: Path) -> str:
        return ray_jobs.submit(self.address, file)

    def look(self, job: str) -> JobState | None:
        return ray_jobs.states([job]).get(job)

    def is_inside(self, job: str) -> bool:
        return os.environ.get(JOB) == job

    def cancel(self, job: str, *, if_waiting: bool = False) -> None:
        ray_jobs.cancel(job, if_waiting=if_waiting)

    def requeue(self, job: str) -> None:
        """Do nothing: the job itself asks for other places."""

    def states(self, jobs: Collection[str]) -> dict[str, JobState]:
        return ray_jobs.states(jobs)

    @property
    def _submits(self) -> bool:
        """Whether a run is a job of the cluster."""
        return ray_jobs.is_job_server(self.address)

    @property
    def _head(self) -> str:
        """The address of the cluster's head, which a job finds in its environment; empty: none. Raises SettingError."""
        if self.queues():
            raise SettingError(
                f"engine.address: {self.address} is a job server, which takes whole runs; accepted here: the cluster's "
                "head, as alpha:6379"
            )
        return os.environ.get(ADDRESS, "") if self._submits else self.address

    def _settings(self, count: int, address: str, *, log: str = "", held: str = "", first: int = 0) -> ActorSettings:
        return ActorSettings(
            count=count,
            address=address,
            cpus=self.cpus,
            gpus=self.gpus,
            spread=self.spread,
            bring=self.bring if self.address else (),
            log=log,
            held=held,
            first=first,
        )

    def _lacks(self, workers: int) -> str | None:
        """Why the cluster cannot hold so many."""
        try:
            socket.create_connection(_parted(self.address), CONNECT_S).close()
        except OSError as error:
            return f"no cluster of Ray's answers at {self.address}: {error.strerror or error}"
        answer = answer_of([*ACTORS, ActorSettings(count=0, address=self.address).words()])
        if "InvalidAuthToken" in answer.stderr:
            return f"the cluster at {self.address} {ray_jobs.ASKS_FOR_A_TOKEN}"
        if answer.returncode:
            return f"Ray does not connect to {self.address}: {last_line(answer)}"
        return self._too_many(workers, json.loads(answer.stdout.splitlines()[-1]))

    def _too_many(self, workers: int, has: Mapping[str, float] | None) -> str | None:
        for name, each in (("CPU", self.cpus), ("GPU", self.gpus)):
            if has is not None and has.get(name, 0) < workers * each:
                return f"{workers} workers take {workers * each:g} {name}s, and the cluster has {has.get(name, 0):g}"
        return None


def _parted(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def _guarded() -> dict[str, str]:
    """A cluster of our own asks for a token that nobody else has, and reports to nobody that it is used; its actors
    compute with the priority of any process, where Ray's own default gives all others of the machine more.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }


ENGINE = RayEngine
