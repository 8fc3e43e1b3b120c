"""Workers on this machine that another driver has started: watched and ended by their process ids."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from volary.engine._base import Exited
from volary.run.machine.descendants import KILLED_WITHIN_S

_LOOK_S = 0.01


class OthersWorkers:
    """As a Handle, see `Handle`. here: gives their processes by rank, as far as they have come.

    They are no children of this process, so that it is their connections that show how they end.
    """

    def __init__(self, here: Callable[[], Mapping[int, int]]) -> None:
        self._here = here
        self._opened: dict[int, int] = {}  # descriptors, which a later process of the same number has not
        self._ended: set[int] = set()

    def pids(self) -> dict[int, int]:
        for rank, pid in self._here().items():
            if rank not in self._opened and rank not in self._ended:
                try:
                    self._opened[rank] = os.pidfd_open(pid)
                except OSError:
                    self._ended.add(rank)
        return {rank: pid for rank, pid in self._here().items() if self._runs(rank)}

    def _runs(self, rank: int) -> bool:
        """Whether it has not ended."""
        if (descriptor := self._opened.get(rank)) is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, 0)
        except ProcessLookupError:
            os.close(self._opened.pop(rank))
            self._ended.add(rank)
            return False
        return True

    def children(self) -> list[int]:
        """The processes that must not outlive this one for long, though another one has started them."""
        return list(self.pids().values())

    def hosts(self) -> dict[int, str]:
        """None yet: they come, and say it."""
        return {}

    def running(self) -> set[int]:
        return set(self.pids())

    def ended(self) -> None:
        """No launcher stands between them and us."""

    def events(self) -> list[Exited]:
        """Exits are for their parent to see."""
        return []

    def ask_to_end(self) -> None:
        for pid in self.pids().values():
            _signal(pid, signal.SIGTERM)

    def kill(self, number: int) -> None:
        if (pid := self.pids().get(number)) is not None:
            _signal(pid, signal.SIGKILL)

    def stop(self, grace_s: float) -> None:
        if grace_s:
            self.ask_to_end()
            self._wait(grace_s)
        for number in self.running():
            self.kill(number)
        self._wait(KILLED_WITHIN_S)
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def _wait(self, at_most_s: float) -> None:
        deadline = time.monotonic() + at_most_s
        while self.running() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def _signal(pid: int, number: int) -> None:
    """Send it to a worker and what that has started: it leads a session of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
