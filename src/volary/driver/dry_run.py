"""Describes what a run of a session would start, without starting it: `volary train --dry-run`."""

from __future__ import annotations

import shlex
from pathlib import Path

from volary.driver.queued import batch_of, queue_of
from volary.driver.servers.settings import launch_of_servers
from volary.driver.start import launch_of_workers
from volary.driver.tasks.checks import check, with_room
from volary.driver.tasks.placing import host_of
from volary.driver.tasks.task import stem
from volary.engine._base import Engine
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.session.spec import Session


def planned(session: Session) -> list[tuple[str, str]]:
    """The purpose and command line of each launch: the launcher's, or that of each process; or the batch file.

    A run's number and its server's port and attempt are not known before it begins. Raises BadInput as `start` does.
    """
    session = with_room(session)
    check(session)
    engine: Engine = session.engine
    directory = RunDirectory(Path(session.run.folder) / (session.run.name or stem(session)))
    if (queue := queue_of(engine)) is not None:
        return [("the batch file", queue.batch_file(batch_of(directory, session.strategy)).rstrip())]
    meeting, strategy = Meeting(host_of(session, engine), 0, 0, ""), session.strategy
    launches = [launch_of_workers(directory, session, meeting)]
    if servers := launch_of_servers(directory, strategy, meeting):
        launches.insert(0, servers)
    found = []
    for launch in launches:
        command = engine.command(launch)
        often = f", run {launch.count} times" if launch.count > 1 and command == launch.command else ""
        many = f"{launch.count} {launch.role}{'s' * (launch.count > 1)}{often}"
        found.append((f"{many}; the driver listens on {meeting.host}", shlex.join(command)))
    return found
