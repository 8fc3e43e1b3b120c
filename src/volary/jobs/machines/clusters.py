"""The runs that this user has submitted to queues of clusters: noted when they are, and asked after there.

The run's directory says which job of which queue it is; the note only says where there are such runs.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from volary.engine.launchers.queue import JobState
from volary.errors import VolaryError
from volary.jobs.table import state_folder
from volary.run.directory import RunDirectory, is_run
from volary.run.launch.queued import LOCAL, QueuedJob, job_of

_UNANSWERED = "its queue does not answer now"


@dataclass(frozen=True)
class ClusterJob:
    """A run that is a job of a cluster's queue, and how that is."""

    directory: RunDirectory
    job: QueuedJob
    state: JobState


def note_submitted(directory: RunDirectory) -> None:
    """Note that the run is a job of a cluster's. Raises VolaryError if that cannot be written."""
    with _notes() as notes:
        _write(notes, {*_read(notes), str(directory.path)})


def jobs_of_clusters() -> list[ClusterJob]:
    """This user's runs that wait or run in queues of clusters. Those that are over there are forgotten."""
    if not _file().exists():
        return []
    with _notes() as notes:
        noted = _read(notes)
    found = [one for one in _jobs(noted) if not one.state.over]
    if over := noted - {str(one.directory.path) for one in found}:
        with _notes() as notes:
            _write(notes, _read(notes) - over)
    return found


def _jobs(runs: Iterable[str]) -> Iterator[ClusterJob]:
    from volary.engine import ROOM
    from volary.engine.launchers.queue import Queue

    there = [RunDirectory(run) for run in sorted(runs) if is_run(Path(run))]
    jobs = [(run, job) for run in there if (job := job_of(run)) is not None and job.engine != LOCAL]
    for engine in sorted({job.engine for _, job in jobs}):
        queue = ROOM.load(engine)()
        assert isinstance(queue, Queue)
        states = queue.states([job.number for _, job in jobs if job.engine == engine])
        for run, job in jobs:
            if job.engine == engine:
                unknown = JobState(waiting=not run.is_live(), over=False, words=_UNANSWERED)
                yield ClusterJob(run, job, states.get(job.number, unknown))


def _file() -> Path:
    return state_folder() / "cluster-runs.json"


@contextmanager
def _notes() -> Iterator[TextIO]:
    """The file, which nobody else reads or writes meanwhile."""
    file = _file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.open("a+") as notes:
            fcntl.flock(notes, fcntl.LOCK_EX)  # until it is closed
            yield notes
    except OSError as error:
        raise VolaryError(f"{file}: cannot be written: {error.strerror}") from None


def _read(notes: TextIO) -> set[str]:
    notes.seek(0)
    try:
        return msgspec.json.decode(notes.read(), type=set[str])
    except (ValueError, msgspec.MsgspecError):  # new, or damaged: the runs themselves are whole
        return set()


def _write(notes: TextIO, runs: set[str]) -> None:
    notes.truncate(0)
    notes.write(msgspec.json.encode(sorted(runs)).decode())
