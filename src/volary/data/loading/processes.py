"""Processes forked from this one, for work that holds the interpreter's lock. They end with whoever forked them.

All of them take pieces of work from one pipe, and say in another what they have done. They have no file open but those
two and what they were left, no thread, and answer no Ctrl-C: that is for the process that they were forked from.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import struct
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

PIECES = 1024  # that may be under way: fewer than either pipe holds, so that nobody waits to write
ENDING_S = 1.0  # for a piece that is being done, until its process is killed
_LOST = -1  # the slot of a piece that ends a process


class RowRange(NamedTuple):
    """Rows `start` to before `stop` of a slot, of an epoch."""

    slot: int
    epoch: int
    start: int
    stop: int


class Report(NamedTuple):
    """A piece that is done, and the number that the work gave."""

    slot: int
    epoch: int
    start: int
    stop: int
    found: int


Begin = Callable[[], Callable[[RowRange], int]]
_PIECE, _REPORT = struct.Struct("4q"), struct.Struct("5q")


class ForkedProcesses:
    """`count` processes. begin: called in each of them, gives what it does with a piece. descriptors: files it needs.

    Forking copies what this process has: no other thread may hold a lock that the work takes.
    """

    def __init__(self, count: int, begin: Begin, descriptors: Iterable[int]) -> None:
        tasks, self._tasks = os.pipe()
        self._reports, reports = os.pipe()
        self.pids: list[int] = []
        try:
            for _ in range(count):
                self.pids.append(_forked(tasks, reports, begin, descriptors))
        finally:
            os.close(tasks)
            os.close(reports)
            self._ends = [os.pidfd_open(pid) for pid in self.pids]
            weakref.finalize(self, _end, os.getpid(), self._tasks, self._reports, self.pids, self._ends)
        self._poll = select.poll()
        for descriptor in (self._reports, *self._ends):
            self._poll.register(descriptor, select.POLLIN)

    def kill(self) -> None:
        """End all of them at once, and wait for it: from now on they write nowhere."""
        for pid, end in zip(self.pids, self._ends, strict=True):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _has_ended(end, None)

    def submit(self, pieces: Sequence[RowRange]) -> None:
        with suppress(BrokenPipeError):  # none of them lives: that is heard with the reports
            os.write(self._tasks, b"".join(_PIECE.pack(*piece) for piece in pieces))

    def reports(self, at_most_s: float) -> tuple[list[Report], bool]:
        """Wait for reports; return those since the last call, and whether all processes live."""
        ready = [descriptor for descriptor, _ in self._poll.poll(at_most_s * 1000)]
        content = os.read(self._reports, PIECES * _REPORT.size) if self._reports in ready else b""
        alive = len(ready) == bool(content)  # else one has ended, or all have closed the pipe
        return list(map(Report._make, _REPORT.iter_unpack(content))), alive


def _forked(tasks: int, reports: int, begin: Begin, descriptors: Iterable[int]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold no lock that the work takes
        pid = os.fork()
    if pid == 0:
        _serve(tasks, reports, begin, descriptors)
    return pid


def _serve(tasks: int, reports: int, begin: Begin, descriptors: Iterable[int]) -> NoReturn:
    try:
        gc.disable()  # it would end objects whose files and connections are the other process's
        signal.set_wakeup_fd(-1)
        for asked in (signal.SIGINT, signal.SIGTERM):  # launchers ask all processes at once; who forked us answers
            signal.signal(asked, signal.SIG_IGN)
        _close_others({0, 1, 2, tasks, reports, *descriptors})
        work = begin()
        while content := os.read(tasks, _PIECE.size):  # nothing: the other process has ended
            piece = RowRange(*_PIECE.unpack(content))
            if piece.slot == _LOST:
                break
            os.write(reports, _REPORT.pack(*piece, work(piece)))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _close_others(kept: set[int]) -> None:
    """Connections and locks of the other process must be closed when it closes them."""
    before = -1
    for descriptor in sorted(kept):
        if before + 1 < descriptor:  # from 0 to before 0 would be all
            os.closerange(before + 1, descriptor)
        before = descriptor
    os.closerange(before + 1, os.sysconf("SC_OPEN_MAX"))


def _end(owner: int, tasks: int, reports: int, pids: Sequence[int], ends: Sequence[int]) -> None:
    """Ask them to end, wait, and kill those that do not."""
    if os.getpid() != owner:  # another process that was forked meanwhile
        return
    with suppress(OSError):
        os.set_blocking(tasks, False)
        os.write(tasks, _PIECE.pack(_LOST, 0, 0, 0) * len(pids))
    os.close(tasks)
    until = time.monotonic() + ENDING_S
    for pid, end in zip(pids, ends, strict=True):
        if not _has_ended(end, max(0.0, until - time.monotonic())):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # somebody else has waited for it
            os.waitpid(pid, 0)
        os.close(end)
    os.close(reports)


def _has_ended(end: int, at_most_s: float | None) -> bool:
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    return bool(waiting.poll(None if at_most_s is None else at_most_s * 1000))
