"""Slurm: a run is a job of its own, in which `srun` starts the processes; or it takes the allocation it is begun in."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.launchers import sbatch
from volary.engine.launchers.commands import answer_of, last_line, refusal
from volary.engine.launchers.launched import Launched, variables_for
from volary.engine.launchers.queue import BatchJob, JobState
from volary.engine.local import LOOPBACK
from volary.errors import SettingError
from volary.run.machine.addresses import address_towards, is_this_machine

_OPTION = re.compile(r"[a-z][a-z-]*(=\S+)?")


@dataclass(frozen=True, kw_only=True)
class SlurmEngine:
    """Workers and servers are tasks of `srun`. Outside of an allocation the run, driver and all, is submitted as a job.

    All but `pin` and `max_restarts` describe that job; in an allocation that you have made they are made already.
    """

    partition: str = ""  # of nodes; empty: the cluster's default
    account: str = ""  # that is charged; empty: your default
    time: str = ""  # limit of the job, as Slurm has it (30:00, 2-12:00:00); empty: the partition's
    nodes: int | None = None  # how many nodes; default: as few as hold all workers
    gpus: int | None = None  # GPUs of each worker; default: none are asked for
    options: tuple[str, ...] = ()  # further options of sbatch, without --, as [qos=debug, cpus-per-task=4]
    pin: bool = True  # each worker stays on its own share of the cores that its node has for the run
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        for name, value in (("nodes", self.nodes), ("gpus", self.gpus)):
            if value is not None and value < 1:
                raise SettingError(f"{name} is {value}; accepted: a whole number, 1 or more")
        for option in self.options:
            if not _OPTION.fullmatch(option):
                raise SettingError(f"options has {option!r}; accepted: long options without --, as qos=debug")

    def check(self, workers: int) -> str | None:
        """Check for srun, a controller that answers, and room for all: in the allocation, or in a new one."""
        if shutil.which("srun") is None:
            return "there is no srun here; on Debian it is in slurm-client, and a cluster's login nodes have it"
        if self.queues():
            options = [f"--{option}" for option in self._options(workers)]
            refused = refusal(["sbatch", "--test-only", *options, "--wrap=true"])
        else:
            refused = _too_many(os.environ["SLURM_JOB_ID"], workers)
        return None if refused is None else f"Slurm does not take {workers} workers: {refused}"

    def warnings(self, workers: int) -> list[str]:
        """No warnings: Slurm judges what nodes have."""
        return []

    def host(self) -> str:
        """This machine's address on the route to a node; loopback if it is the only one of the allocation.

        Raises SettingError if Slurm names no node.
        """
        where = [f"--partition={self.partition}"] if self.partition else []
        if not self.queues():
            where = [f"--nodes={_of_job(os.environ['SLURM_JOB_ID'], '%N')}"]
        answer = answer_of(["sinfo", "--noheader", "--Node", "--format=%o", *where])
        addresses = answer.stdout.split()
        if answer.returncode or not addresses:
            raise SettingError(f"engine: Slurm names no node: {last_line(answer)}")
        others = [address for address in addresses if not is_this_machine(address)]
        if self.queues() or others:
            return address_towards((others or addresses)[0])
        return LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The command line of one srun that starts all processes of the launch."""
        # a task that is lost, or a node, is the driver's to judge: srun ends nobody for it
        own = [
            "--kill-on-bad-exit=0",
            "--no-kill",
            "--wait=0",
            "--input=none",
            "--mpi=none",
            f"--job-name={_name(launch)}",
        ]
        if self.queues():
            return ["srun", *own, *(f"--{option}" for option in self._options(launch.count)), *launch.command]
        # servers, and workers that join, take their time on the cores that the others have
        return ["srun", *own, "--overlap", f"--ntasks={launch.count}", *launch.command]

    def prepare(self, workers: int) -> None:
        """Do nothing: the launcher starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Start them by one srun. What it prints is in a log of its own."""
        variables = variables_for(launch, pin=self.pin)
        return Launched("srun", launch, self.command(launch), variables, ask=lambda: _terminate(_name(launch)))

    def queues(self) -> bool:
        return "SLURM_JOB_ID" not in os.environ

    def batch_file(self, batch: BatchJob) -> str:
        return sbatch.text(batch, self._options(batch.workers))

    def submit(self, file: Path) -> str:
        return sbatch.submit(file)

    def look(self, job: str) -> JobState | None:
        return sbatch.states([job]).get(job)

    def is_inside(self, job: str) -> bool:
        return os.environ.get("SLURM_JOB_ID") == job

    def cancel(self, job: str, *, if_waiting: bool = False) -> None:
        sbatch.cancel(job, if_waiting=if_waiting)

    def requeue(self, job: str) -> None:
        sbatch.requeue(job, at_its_limit="requeue" in self.options)

    def states(self, jobs: Collection[str]) -> dict[str, JobState]:
        return sbatch.states(jobs)

    def _options(self, count: int) -> list[str]:
        found = [f"ntasks={count}"]
        for name, value in (
            ("partition", self.partition),
            ("account", self.account),
            ("time", self.time),
            ("nodes", self.nodes),
            ("gpus-per-task", self.gpus),
        ):
            found += [f"{name}={value}"] if value else []
        return [*found, *self.options]


def _name(launch: Launch) -> str:
    """The name of the step, and of no other step of this user's."""
    return f"volary-{launch.directory.name}-{launch.role}s-{launch.meeting.attempt_id[:8]}-{launch.first}"


def _of_job(job: str, what: str) -> str:
    """One of squeue's fields. Raises SettingError if Slurm does not answer, or knows no such job."""
    answer = answer_of(["squeue", f"--jobs={job}", "--noheader", f"--format={what}"])
    if answer.returncode or not answer.stdout.strip():
        raise SettingError(f"engine: Slurm knows nothing of job {job}, which SLURM_JOB_ID names: {last_line(answer)}")
    return answer.stdout.strip()


def _too_many(job: str, workers: int) -> str | None:
    """Why an allocation does not hold so many."""
    try:
        cores = int(_of_job(job, "%C"))
    except SettingError as error:
        return str(error).removeprefix("engine: ")
    return f"the allocation, job {job}, has {cores} cores" if workers > cores else None


def _terminate(name: str) -> None:
    """Tell the tasks of the step of this name: srun itself would end them at once."""
    for step in answer_of(["squeue", "--me", "--steps", "--noheader", "--format=%i %j"]).stdout.splitlines():
        number, _, called = step.partition(" ")
        if called.strip() == name:
            answer_of(["scancel", "--quiet", "--signal=TERM", number])


ENGINE = SlurmEngine
