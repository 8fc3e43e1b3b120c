"""This machine: workers are processes that the driver starts itself, each on a fair share of the cores."""

from __future__ import annotations

import os
from dataclasses import dataclass

from volary.engine._base import Launch
from volary.engine._processes import Processes
from volary.errors import SettingError
from volary.run.memory import FITS, WORKER_BYTES, available_bytes, judge


@dataclass(frozen=True, kw_only=True)
class Local:
    """Worker processes on this machine."""

    pin: bool = True  # each worker stays on its own share of the cores

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

    def launch(self, launch: Launch) -> Processes:
        """Start one process per worker; what it prints goes to its log."""
        processes, cores = Processes(), cores_here()
        try:
            for rank in range(launch.first_rank, launch.world_size):
                share = share_of(cores, rank, launch.world_size)
                place = _place(launch, rank) | {
                    "VOLARY_CORES": ",".join(map(str, share if self.pin else cores)),
                    "OMP_NUM_THREADS": len(share),
                }
                processes.start(rank, launch.command, place, launch.directory.log(rank))
        except BaseException:
            processes.stop(0)
            raise
        return processes


def cores_here() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share_of(cores: list[int], rank: int, workers: int) -> list[int]:
    """The cores of worker `rank`: an even cut, or one core each in turn where there are more workers than cores."""
    if workers >= len(cores):
        return [cores[rank % len(cores)]]
    return cores[rank * len(cores) // workers : (rank + 1) * len(cores) // workers]


def _place(launch: Launch, rank: int) -> dict[str, object]:
    return {
        "VOLARY_RANK": rank,
        "VOLARY_WORLD_SIZE": launch.world_size,
        "VOLARY_LIFE": launch.life,
        "VOLARY_MEET": launch.meet,
        "VOLARY_SERVER_LIFE": launch.server_life,
        "VOLARY_RUN": launch.directory.path,
        "VOLARY_JOB": launch.job,
    }


ENGINE = Local
