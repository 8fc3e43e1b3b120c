"""A command that runs on a host: started, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from volary.lab.network.namespaces import Namespaces

LOST_WAKE_S = 1.0  # a kernel was seen that did not wake who polled for a process that had ended

# A shell around the command: the folder has to be entered after the mounts are, and only children of who has entered a
# pid namespace are in it. nsenter would fork one, but stops itself when that stops: then nobody would see it end. A
# shell waits for the end alone; what it says of a signal goes nowhere, while the command writes where it would.
_IN_FOLDER = 'cd "$0" && {{ exec {spare}>&2 2>/dev/null; (exec 2>&{spare} {spare}>&-; exec "$@"); exit $?; }}'


class Job:
    """One process on a host, and what it starts. output: what it writes to stdout and stderr (None: to ours).

    cores: those that it may use; None: all of this process's. keep: descriptors that it has open, too.
    """

    def __init__(
        self,
        space: Namespaces,
        argv: Sequence[str],
        environment: Mapping[str, str],
        output: IO[bytes] | int | None = None,
        cores: Sequence[int] | None = None,
        keep: Sequence[int] = (),
    ) -> None:
        spare = next(number for number in range(9, 2, -1) if number not in keep)  # a shell may know digits alone
        in_folder = ["sh", "-c", _IN_FOLDER.format(spare=spare), str(Path.cwd())]
        with _on_cores(cores):
            self._process = subprocess.Popen(
                space.command([*in_folder, *argv]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                env=os.environ | dict(environment),
                pass_fds=keep,
                start_new_session=True,  # Ctrl-C in the terminal is for the lab to answer
            )
        self._end = os.pidfd_open(self._process.pid)

    @property
    def status(self) -> int | None:
        """The exit status, 128 + the number of the signal that ended it, or None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The status once it has ended; None if it has not within the time."""
        wait_any([self], timeout_s)
        return self.status

    def signal(self, number: int) -> None:
        """Send a signal to the command itself; SIGKILL goes to all that it has started, too."""
        for pid in self._inside(everything=number == signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """End it, if it has not ended, and forget it."""
        while self.wait(0) is None:
            self.signal(signal.SIGKILL)
            self._process.send_signal(signal.SIGCONT)  # somebody may have stopped the shell, too
            self.wait(0.1)
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _inside(self, everything: bool) -> list[int]:
        """The processes on the host, by their numbers out here; our own child only stands for them."""
        import psutil  # not needed by `volary --help`

        try:
            return [child.pid for child in psutil.Process(self._process.pid).children(recursive=everything)]
        except psutil.NoSuchProcess:
            return []


def wait_any(jobs: Sequence[Job], timeout_s: float | None = None) -> None:
    """Return when one of the jobs has ended, or the time is over (None: never). Sleeps; it takes no core.

    With no jobs at all there is nothing to wait for.
    """
    deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while jobs and all(job.status is None for job in jobs) and (left_s := deadline - time.monotonic()) > 0:
        poll = select.poll()
        for job in jobs:
            poll.register(job._end, select.POLLIN)
        poll.poll(min(left_s, LOST_WAKE_S) * 1000)


def end_all(jobs: Sequence[Job], grace_s: float) -> None:
    """Ask those that run to end (SIGTERM), and kill what still runs after `grace_s`, or when this is interrupted."""
    try:
        for job in jobs:
            if job.status is None:
                job.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while (running := [job for job in jobs if job.status is None]) and time.monotonic() < deadline:
            wait_any(running, deadline - time.monotonic())
    finally:
        for job in jobs:
            job.close()


@contextmanager
def _on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """Stand on these cores for a while: what is started meanwhile stays there."""
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
