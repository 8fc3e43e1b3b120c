"""This machine: the driver starts the processes itself, each worker on a fair share of the cores."""

from __future__ import annotations

import os
from dataclasses import dataclass

from volary.engine._base import Launch, require_restarts
from volary.engine._processes import Processes
from volary.errors import SettingError
from volary.run.machine.cores import cores_here, share_of
from volary.run.machine.memory import FITS, WORKER_BYTES, available_bytes, judge

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Processes on this machine."""

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
        fitting = max(1, int((available or 0) * FITS) // WORKER_BYTES)
        words = f"{workers} workers take, at {WORKER_BYTES >> 20} MiB each for Python and torch alone,"
        return judge(workers * WORKER_BYTES, available, words, f"up to {fitting} workers")

    def host(self) -> str:
        """Loopback: nobody else has to reach the run."""
        return LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """Of each process."""
        return list(launch.command)

    def launch(self, launch: Launch) -> Processes:
        """Start the processes; what each prints goes to its log."""
        processes = Processes()
        try:
            for number in launch.numbers:
                mine = self._worker(launch, number) if launch.role == "worker" else _server(launch, number)
                processes.start(
                    number,
                    launch.command,
                    launch.variables() | {"VOLARY_DRIVER": str(os.getpid())} | mine,
                    launch.log(number),
                )
        except BaseException:
            processes.stop(0)
            raise
        return processes

    def _worker(self, launch: Launch, rank: int) -> dict[str, str]:
        cores, workers = cores_here(), launch.first + launch.count
        share = share_of(cores, rank, workers)
        return {
            "VOLARY_RANK": str(rank),
            "VOLARY_WORLD_SIZE": str(workers),
            "VOLARY_CORES": ",".join(map(str, share if self.pin else cores)),
            "OMP_NUM_THREADS": str(len(share)),
        }


def _server(launch: Launch, number: int) -> dict[str, str]:
    cores = max(1, len(cores_here()) // (launch.count + launch.beside))
    return {"VOLARY_SERVER": str(number), "OMP_NUM_THREADS": str(cores)}


ENGINE = LocalEngine
