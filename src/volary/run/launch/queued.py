"""The job of a queue, a cluster's or this machine's, that a run is: noted in its directory, for any terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec

from volary.errors import RunError
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file

LOCAL = "queue"  # in place of an engine: the queue of this machine (volary.jobs), which numbers jobs by their runs
QUEUED_RUN = "VOLARY_QUEUED_RUN"  # the variable by which a driver knows that a queue has started it


@dataclass(frozen=True)
class QueuedJob:
    """engine: whose queue it is in. number: as the queue has it. attempt: the run's newest before the job; -1: none."""

    engine: str
    number: str
    attempt: int

    def __str__(self) -> str:
        return "a job of this machine's queue" if self.engine == LOCAL else f"job {self.number} of {self.engine}"


def note_job(directory: RunDirectory, job: QueuedJob) -> None:
    """Note which job the run is now. Raises RunError if that cannot be written."""
    try:
        replace_file(Disk(), directory.job, msgspec.json.encode(asdict(job)), mode=0o600)
    except OSError as error:
        raise RunError(f"{directory.job}: cannot be written: {error.strerror}") from None


def job_of(directory: RunDirectory) -> QueuedJob | None:
    """The job that the run is, or was; None if it never was one, or that cannot be read."""
    try:
        with open_regular(directory.job) as file:
            return msgspec.json.decode(file.read(), type=QueuedJob)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
