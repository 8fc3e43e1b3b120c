"""Wakes a runner that waits: whoever changes its queue writes to a named pipe there, and ends of processes are seen."""

from __future__ import annotations

import os
import select
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

PIPE = "wake"  # in the folder of the queue
LOOK_S = 0.25  # between two looks at what wakes nobody
_READ_BYTES = 4096
_ENDED = -1


def wake_runner(folder: Path) -> None:
    """Let the runner of the queue in `folder` see what is new there, if it waits."""
    with suppress(OSError):  # there is none, or so many have woken it that the pipe is full
        pipe = os.open(folder / PIPE, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"\0")
        finally:
            os.close(pipe)


class WakeUps:
    """Waits in the runner of the queue in `folder`; on a disk that takes no pipe, for `LOOK_S` at a time."""

    def __init__(self, folder: Path) -> None:
        self._poll = select.poll()
        self._ends: dict[int, int] = {}  # descriptors by process, which a later one of the same number has not
        self._pipe = -1
        with suppress(OSError):
            (folder / PIPE).unlink(missing_ok=True)  # of a runner before this one: nobody reads there any more
            os.mkfifo(folder / PIPE, mode=0o600)
            self._pipe = os.open(folder / PIPE, os.O_RDWR | os.O_NONBLOCK)
            self._poll.register(self._pipe, select.POLLIN)

    def wait(self, at_most_s: float, processes: Collection[int]) -> None:
        """Wait until `wake_runner` is called, one of the processes ends, or the time is over.

        Of one that has ended, or that nobody knows (0), it is not seen when what it has begun ends: `LOOK_S` at most.
        """
        self._watch(set(processes))
        if self._pipe < 0 or _ENDED in self._ends.values():
            at_most_s = min(at_most_s, LOOK_S)
        ready = {descriptor for descriptor, _ in self._poll.poll(1000 * at_most_s)}
        if self._pipe in ready:
            os.read(self._pipe, _READ_BYTES)
        for process in [process for process, end in self._ends.items() if end in ready]:
            self._forget(process)
            self._ends[process] = _ENDED

    def close(self) -> None:
        """Wait for nothing any more."""
        self._watch(set())
        if self._pipe >= 0:
            os.close(self._pipe)

    def _watch(self, processes: set[int]) -> None:
        for process in self._ends.keys() - processes:
            self._forget(process)
        for process in processes - self._ends.keys():
            self._ends[process] = _ENDED
            with suppress(AttributeError, OSError):  # the system may not have it
                if process > 0:
                    self._ends[process] = os.pidfd_open(process)
                    self._poll.register(self._ends[process], select.POLLIN)

    def _forget(self, process: int) -> None:
        if (end := self._ends.pop(process)) != _ENDED:
            self._poll.unregister(end)
            os.close(end)
