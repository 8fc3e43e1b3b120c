"""Where the driver of a worker's run is now: one that takes the place of a lost one meets its workers elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, announced

if TYPE_CHECKING:
    from volary.comm.control.store import KeyedStore


class CurrentDriver:
    """Shared by all that a worker reaches its driver with. meeting: replaced whole, by the thread of its heartbeat."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self._board: tuple[Meeting, KeyedStore] | None = None

    def keep_board(self, meeting: Meeting, board: KeyedStore) -> None:
        """Keep a board, met there, open for the next group: far away a new connection takes several round trips."""
        self._board = meeting, board

    def board(self, key: bytes, timeout_s: float) -> tuple[Meeting, KeyedStore]:
        """The run's board, as it was kept open or connected to anew, and where it is. timeout_s: as of the store.

        Raises VolaryError.
        """
        from volary.comm.control.store import KeyedStore  # imports torch

        at, kept, self._board = self.meeting, self._board, None
        if kept is not None and kept[0] == at and not kept[1].closed:
            return kept
        if kept is not None:
            kept[1].close()
        return at, KeyedStore.at(at.host, at.port, key, at.attempt_id, timeout_s)

    def newer(self, directory: RunDirectory) -> Meeting | None:
        """Where a driver meets that has taken the place of this one, if the run's directory says so."""
        found = announced(directory)
        return found if found is not None and found.attempt > self.meeting.attempt else None
