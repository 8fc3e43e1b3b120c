"""An engine whose cluster has a queue: a whole run, driver and workers, is one job, which waits there for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

COMMANDS = ("squeue",)  # by which engines look at their queues: without any there is nobody to ask


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """A job to be submitted. name: as the queue shows it. command: the driver's, which starts so many workers.

    folder: where the command runs. log: of what it prints.
    """

    name: str
    command: Sequence[str]
    workers: int
    folder: Path
    log: Path


@dataclass(frozen=True)
class JobState:
    """How a job is: waiting (for machines; it may be so again, later), running, or over. words: the queue's own."""

    waiting: bool
    over: bool
    words: str


@dataclass(frozen=True)
class ClusterJob:
    """A run's job in a cluster's queue. batch: the file that was submitted. number: as the queue has it."""

    batch: Path
    number: str
    state: JobState


class JobQueue(Protocol):
    """A queue in which runs are: a cluster's, or this machine's."""

    def look(self, job: str) -> JobState | None:
        """How a job is; None if the queue does not answer now. One that it does not know any more is over."""
        ...

    def is_inside(self, job: str) -> bool:
        """Whether this process is part of that job."""
        ...

    def cancel(self, job: str, *, if_waiting: bool = False) -> None:
        """End a job; with `if_waiting` only one that has not started."""
        ...


@runtime_checkable
class Queue(JobQueue, Protocol):
    """An engine with a queue, and what it can do beside an engine's work."""

    def queues(self) -> bool:
        """Whether a run that begins here is to be submitted: not inside of a job, where it starts at once."""
        ...

    def batch_file(self, batch: BatchJob) -> str:
        """The text of the file that is submitted."""
        ...

    def submit(self, file: Path) -> str:
        """Submit the file; the job's number. Raises BadInput with the queue's reason if it does not take it."""
        ...

    def jobs(self) -> list[ClusterJob]:
        """This user's jobs that wait or run, runs or not; none where there is no such queue, or it does not answer."""
        ...
