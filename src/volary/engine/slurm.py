"""Slurm: `srun` starts the processes, in the allocation that it is called in, or in one of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from volary.engine._base import Handle, Launch, require_restarts
from volary.engine._launched import Launched, told
from volary.errors import SettingError
from volary.run.machine.addresses import address_towards

ANSWER_S = 30.0  # of a controller that is busy
_OPTION = re.compile(r"[a-z][a-z-]*(=\S+)?")


@dataclass(frozen=True, kw_only=True)
class SlurmEngine:
    """Workers and servers are tasks of `srun`. The driver stays where it was started, and nodes must reach it there."""

    partition: str = ""  # of nodes; empty: the cluster's default
    account: str = ""  # that is charged; empty: your default
    time: str = ""  # limit of the allocation, as Slurm has it (30:00, 2-12:00:00); empty: the partition's
    nodes: int | None = None  # how many nodes; default: as few as hold all workers
    options: tuple[str, ...] = ()  # further options of srun, without --, as [qos=debug, gpus-per-task=1]
    pin: bool = True  # each worker stays on its own share of the cores that its node has for the run
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        if self.nodes is not None and self.nodes < 1:
            raise SettingError(f"nodes is {self.nodes}; accepted: a whole number, 1 or more")
        for option in self.options:
            if not _OPTION.fullmatch(option):
                raise SettingError(f"options has {option!r}; accepted: long options without --, as qos=debug")

    def check(self, workers: int) -> str | None:
        """There must be an srun, a controller that answers, and, outside of an allocation, one that could be had."""
        if shutil.which("srun") is None:
            return "there is no srun here; on Debian it is in slurm-client, and a cluster's login nodes have it"
        refused = _refusal(["sinfo", "--noheader", "--format=%D"])
        if refused is None and not _allocated():
            refused = _refusal(["srun", "--test-only", *self._options(workers), "true"])
        return None if refused is None else f"Slurm does not take {workers} workers: {refused}"

    def warnings(self, workers: int) -> list[str]:
        """What nodes have is Slurm's to judge."""
        return []

    def host(self) -> str:
        """This machine's address on the route to a node."""
        where = ["--partition", self.partition] if self.partition else []
        said = _said(["sinfo", "--noheader", "--Node", "--format=%o", *where])
        addresses = said.stdout.split()
        if said.returncode or not addresses:
            raise SettingError(f"engine: Slurm names no node: {_last_line(said)}")
        return address_towards(addresses[0])

    def command(self, launch: Launch) -> list[str]:
        """One srun for all of them."""
        # a task that is lost is the driver's to judge: srun ends nobody for it
        own = ["--kill-on-bad-exit=0", "--wait=0", "--input=none", "--mpi=none", f"--job-name={_name(launch)}"]
        return ["srun", *own, *self._options(launch.count), *launch.command]

    def launch(self, launch: Launch) -> Handle:
        """Start them by one srun. What it prints is in a log of its own."""
        variables = told(launch, pin=self.pin)
        return Launched("srun", launch, self.command(launch), variables, ask=lambda: _terminate(_name(launch)))

    def _options(self, count: int) -> list[str]:
        found = [f"--ntasks={count}"]
        for name, value in (("partition", self.partition), ("account", self.account), ("time", self.time)):
            found += [f"--{name}={value}"] if value else []
        found += [f"--nodes={self.nodes}"] if self.nodes else []
        return found + [f"--{option}" for option in self.options]


def _name(launch: Launch) -> str:
    """Of the step, and of no other of this user's."""
    return f"volary-{launch.directory.name}-{launch.role}s-{launch.meeting.server_life[:8]}-{launch.first}"


def _allocated() -> bool:
    return "SLURM_JOB_ID" in os.environ


def _terminate(name: str) -> None:
    """Tell the tasks of the step of this name: srun itself would end them at once."""
    steps = _said(["squeue", "--me", "--steps", "--noheader", "--format=%i %j"]).stdout.splitlines()
    for step in steps:
        number, _, called = step.partition(" ")
        if called.strip() == name:
            _said(["scancel", "--quiet", "--signal=TERM", number])


def _refusal(command: Sequence[str]) -> str | None:
    said = _said(command)
    return _last_line(said) if said.returncode else None


def _last_line(said: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in f"{said.stdout}\n{said.stderr}".splitlines() if line.strip()]
    return lines[-1].removeprefix("srun: ").removeprefix("error: ") if lines else f"status {said.returncode}"


def _said(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


ENGINE = SlurmEngine
