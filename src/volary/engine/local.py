"""This machine: workers are processes that the driver starts itself, each on a fair share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from volary.engine._base import Exited, Handle, Launch

KILLED_WITHIN_S = 5.0  # only a process that hangs in the kernel, on a dead disk, takes longer


@dataclass(frozen=True, kw_only=True)
class Local:
    """Worker processes on this machine."""

    pin: bool = True  # each worker stays on its own share of the cores

    def check(self, workers: int) -> str | None:
        """Nothing stands in the way here."""
        return None

    def launch(self, launch: Launch) -> Handle:
        """Start one process per worker; what it prints goes to its log."""
        cores = cores_here()
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(launch.workers):
                share = share_of(cores, rank, launch.workers)
                with launch.directory.log(rank).open("ab") as log:
                    started.append(_start(launch, rank, share if self.pin else cores, len(share), log))
        except BaseException:
            _Processes(started).stop(0)
            raise
        return _Processes(started)


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


def _start(launch: Launch, rank: int, cores: list[int], threads: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    place = {
        "VOLARY_RANK": rank,
        "VOLARY_WORLD_SIZE": launch.workers,
        "VOLARY_LIFE": launch.life,
        "VOLARY_MEET": launch.meet,
        "VOLARY_RUN": launch.directory.path,
        "VOLARY_JOB": launch.job,
        "VOLARY_DRIVER": os.getpid(),
        "VOLARY_CORES": ",".join(map(str, cores)),
        "OMP_NUM_THREADS": threads,
    }
    return subprocess.Popen(
        launch.command,
        env=os.environ | {name: str(value) for name, value in place.items()},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # Ctrl-C in the terminal is the driver's to answer
        start_new_session=True,
    )


class _Processes:
    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self._told: set[int] = set()
        self._memory_kills = memory_kills()

    def pids(self) -> dict[int, int]:
        return {rank: process.pid for rank, process in enumerate(self._processes)}

    def events(self) -> list[Exited]:
        found = []
        for rank, process in enumerate(self._processes):
            code = process.poll()
            if code is not None and rank not in self._told:
                self._told.add(rank)
                starved = code == -signal.SIGKILL and memory_kills() > self._memory_kills
                found.append(Exited(rank, code, -code if code < 0 else None, starved))
        return found

    def stop(self, grace_s: float) -> None:
        if grace_s:
            for process in self._processes:
                process.terminate()
            _wait(self._processes, grace_s)
        for process in self._processes:
            # also what a worker started itself: it leads a session of its own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _wait(self._processes, KILLED_WITHIN_S)


def memory_kills(counters: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has ended on this machine to regain memory; 0 where it does not count them."""
    with suppress(OSError):
        for line in counters.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _wait(processes: list[subprocess.Popen[bytes]], at_most_s: float) -> None:
    deadline = time.monotonic() + at_most_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


ENGINE = Local
