"""The runs that queues of clusters have, of which this machine is one: each engine with a queue is asked."""

from __future__ import annotations

import shutil

from volary.engine.launchers.queue import COMMANDS, JobState
from volary.run.directory import RunDirectory, is_run
from volary.run.launch.queued import QueuedJob


def jobs_of_clusters() -> list[tuple[RunDirectory, QueuedJob, JobState]]:
    """This user's runs that wait or run there; none where no command of a queue is installed."""
    if not any(map(shutil.which, COMMANDS)):
        return []
    from volary.engine import ROOM
    from volary.engine.launchers.queue import Queue

    found = []
    for name in ROOM.names():
        if isinstance(queue := ROOM.load(name)(), Queue):
            for job in queue.jobs():
                directory = RunDirectory(job.batch.parent)
                if job.batch == directory.batch and is_run(directory.path):
                    found.append((directory, QueuedJob(name, job.number, -1), job.state))
    return found
