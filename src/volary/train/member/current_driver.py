"""Where the driver of a worker's run is now: one that takes the place of a lost one meets its workers elsewhere."""

from __future__ import annotations

from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, announced


class CurrentDriver:
    """Shared by all that a worker reaches its driver with. meeting: replaced whole, by the thread of its heartbeat."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting

    def newer(self, directory: RunDirectory) -> Meeting | None:
        """Where a driver meets that has taken the place of this one, if the run's directory says so."""
        found = announced(directory)
        return found if found is not None and found.attempt > self.meeting.attempt else None
