"""This machine: the driver starts the processes itself, each worker on a fair share of the cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from volary.engine._base import Launch, require_restarts
from volary.engine.processes.fork_server import ForkEnvironment, ForkServer, fork_server, forks
from volary.engine.processes.processes import NewProcess, Processes
from volary.errors import SettingError
from volary.run.machine.cores import cores_here, share_of
from volary.run.machine.memory import FITS, IMPORTED_BYTES, WORKER_BYTES, available_bytes, judge

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Workers and servers are forked from a process that has imported PyTorch."""

    pin: bool = True  # each worker stays on its own share of the cores
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)

    def check(self, workers: int) -> str | None:
        """Refuses more processes than memory holds, before any of them has a network."""
        try:
            self._memory(workers)
        except SettingError as error:
            return str(error)
        return None

    def warnings(self, workers: int) -> list[str]:
        """More workers than cores, and memory that is tight."""
        cores = len(cores_here())
        more = f"strategy.workers is {workers}, and {cores} core{'s are' if cores > 1 else ' is'} usable here: "
        found = [f"{more}workers take turns on them"] if workers > cores else []
        return found + [text for text in (self._memory(workers),) if text]

    def _memory(self, workers: int) -> str | None:
        available = available_bytes()
        once, each, words = 0, IMPORTED_BYTES + WORKER_BYTES, "for Python and torch alone"
        if forks(os.environ):
            once, each = IMPORTED_BYTES, WORKER_BYTES
            words = f"and {once >> 20} MiB once for Python and torch"
        fitting = max(1, (int((available or 0) * FITS) - once) // each)
        words = f"{workers} workers take, at {each >> 20} MiB each {words},"
        return judge(once + workers * each, available, words, f"up to {fitting} workers")

    def host(self) -> str:
        """Loopback: nobody else has to reach the run."""
        return LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The command that each process is started with."""
        return list(launch.command)

    def prepare(self, workers: int) -> None:
        """Import what they need, in a process that is forked for each of them."""
        self._fork_server(workers)

    def launch(self, launch: Launch) -> Processes:
        """Start the processes; what each prints goes to its log."""
        processes = Processes()
        try:
            starts = {number: self._start(launch, number) for number in launch.numbers}
            workers = launch.first + launch.count - launch.spares if launch.role == "worker" else launch.beside
            if is_python_module(launch.command) and (server := self._fork_server(workers)) is not None:
                processes.fork(server, starts)
            else:
                for number, one in starts.items():
                    processes.start(number, one)
        except BaseException:
            processes.stop(0)
            raise
        return processes

    def _fork_server(self, workers: int) -> ForkServer | None:
        """One for the workers of a run, and for its servers: these need no more threads than a worker has."""
        cores = cores_here()
        share = max((share_of(cores, rank, workers) for rank in range(workers)), key=len)
        threads = {"OMP_NUM_THREADS": str(len(share))}
        return fork_server(ForkEnvironment(os.environ | threads, share if self.pin else cores))

    def _start(self, launch: Launch, number: int) -> NewProcess:
        mine = self._worker(launch, number) if launch.role == "worker" else _server(launch, number)
        ours = launch.variables() | {"VOLARY_DRIVER": str(os.getpid())}
        return NewProcess(launch.command, ours | mine, launch.log(number))

    def _worker(self, launch: Launch, rank: int) -> dict[str, str]:
        cores, workers = cores_here(), launch.first + launch.count - launch.spares
        share = share_of(cores, rank % workers, workers)  # a spare one has a lost one's later
        return {
            "VOLARY_RANK": str(rank),
            "VOLARY_WORLD_SIZE": str(workers + launch.spares),
            "VOLARY_CORES": ",".join(map(str, share if self.pin else cores)),
            "OMP_NUM_THREADS": str(len(share)),
        }


def is_python_module(command: Sequence[str]) -> bool:
    """Whether it is `python -m MODULE ...` of this Python."""
    return len(command) > 2 and list(command[:2]) == [sys.executable, "-m"]


def _server(launch: Launch, number: int) -> dict[str, str]:
    cores = max(1, len(cores_here()) // (launch.count + launch.beside))
    return {"VOLARY_SERVER": str(number), "OMP_NUM_THREADS": str(cores)}


ENGINE = LocalEngine
