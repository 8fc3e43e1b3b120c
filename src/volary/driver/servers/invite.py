"""Makes an invitation to a run that is under way, of what its directory says: nobody has to be asked."""

from __future__ import annotations

from pathlib import Path

from volary.comm.control.handshake import key_of
from volary.driver.servers.join import require_joinable
from volary.driver.start import launch_of_workers
from volary.driver.tasks.task import task_of
from volary.errors import BadInput
from volary.run.directory import RunDirectory
from volary.run.launch.invitation import MOST_WORKERS, SERVICE, Invitation, Terms
from volary.run.launch.meeting import found
from volary.run.launch.way import way_of


def invite(directory: RunDirectory, workers: int, valid_s: float) -> tuple[Invitation, Terms]:
    """An invitation for so many workers, for `valid_s` seconds. Raises RunError if nobody can join the run.

    Paths of the session below the working directory are those below the working directory of who joins.
    """
    if workers > MOST_WORKERS:
        raise BadInput(f"an invitation for {workers} workers; accepted: {MOST_WORKERS} or fewer")
    task = task_of(directory)
    require_joinable(directory, task.strategy)
    meeting, terms = found(directory), Terms.made(workers, valid_s)
    made = Invitation(
        host=meeting.host,
        port=meeting.port,
        attempt=meeting.attempt,
        attempt_id=meeting.attempt_id,
        run=str(directory.path),
        folder=str(Path.cwd()),
        job=launch_of_workers(directory, task, meeting).job,
        terms=str(terms),
        key=key_of(directory.key(), f"{SERVICE}/{terms}"),
        way=way_of(directory),
    )
    return made, terms
