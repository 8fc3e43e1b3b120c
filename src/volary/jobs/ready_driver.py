"""A driver that is started before it is its run's turn: it imports what it needs, and waits to be told its cores."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from volary.jobs.entry import Given, QueueEntry

WAITS = "VOLARY_WAITS_FOR_TURN"  # by which such a driver knows that it has to
_ALIKE = ("run", "python", "folder", "overrides")
_MOST_BYTES = 1 << 16


class Turn(msgspec.Struct, frozen=True):
    """Settings that the driver is given. cores: its own; empty: all. variables: of its environment."""

    cores: tuple[int, ...]
    variables: dict[str, str]


class ReadyDriver:
    """One for a run that starts next, as it seems. It ends with its runner, or when another run is next."""

    def __init__(self, entry: QueueEntry, command: list[str], variables: Mapping[str, str], log: Path) -> None:
        self._entry = entry
        self._socket, theirs = socket.socketpair()
        with theirs, log.open("ab") as written:
            self.process = subprocess.Popen(
                command,
                cwd=entry.folder,
                env={**variables, WAITS: "1"},
                stdin=theirs.fileno(),
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    def is_for(self, entry: QueueEntry) -> bool:
        """Whether it is a driver of that run, and still there."""
        return (
            all(getattr(self._entry, name) == getattr(entry, name) for name in _ALIKE) and self.process.poll() is None
        )

    def start(self, given: Given, variables: Mapping[str, str], lock: int) -> bool:
        """Tell it that it is its turn, and hand over the lock that its runner holds; False if it has gone."""
        turn = Turn(() if given.host else given.cores, dict(variables))
        try:
            socket.send_fds(self._socket, [msgspec.json.encode(turn)], [lock])
        except OSError:
            return False
        self._socket.close()
        return True

    def close(self) -> None:
        """End the driver, as it was not needed."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


def wait_for_turn() -> None:
    """Wait, in a driver that was started before it is its run's turn; it ends here if its runner does.

    Returns at once in any other.
    """
    if os.environ.pop(WAITS, "") == "":
        return
    with socket.socket(fileno=os.dup(0)) as control:
        message, locks, _, _ = socket.recv_fds(control, _MOST_BYTES, 1)
    if not message:
        os._exit(0)
    for lock in locks:  # held as long as this process lives
        os.set_inheritable(lock, False)
    turn = msgspec.json.decode(message, type=Turn)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.update(turn.variables)
    if turn.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, turn.cores)
