"""An engine whose cluster has a queue: a whole run, driver and workers, is one job, which waits there for machines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """A run that is to be submitted. command: its driver's, which starts so many workers. folder: where that runs.

    servers: processes that the engine starts beside the workers.
    """

    directory: RunDirectory
    command: Sequence[str]
    workers: int
    servers: int
    folder: Path

    @property
    def name(self) -> str:
        """Its name in the queue."""
        return f"volary-{self.directory.name}"

    @property
    def log(self) -> Path:
        """The file into which the command prints."""
        return self.directory.logs / "job.log"


@dataclass(frozen=True)
class JobState:
    """How a job is: waiting (for machines; it may be so again, later), running, or over. words: the queue's own."""

    waiting: bool
    over: bool
    words: str


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

    def requeue(self, job: str) -> None:
        """Let this job, whose run has saved and ended as its machines are taken away, wait again, unless it does."""
        ...

    def states(self, jobs: Collection[str]) -> dict[str, JobState]:
        """How these jobs are, asked for together; without those for which the queue does not answer now."""
        ...
