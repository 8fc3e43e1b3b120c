"""Loggers beside a run that trains: a process of their own, which holds nothing up and reads the run's folder."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from volary.errors import VolaryError
from volary.loggers.copying.read import read
from volary.run.control.watcher import Watcher
from volary.run.directory import RunDirectory

END_WITHIN_S = 60.0  # after the run: how long the rest may take to be copied before nobody waits for it any more


class _Logged:
    """Hands everything on to `watcher`, and starts the loggers with the run."""

    def __init__(self, watcher: Watcher, words: Sequence[str]) -> None:
        self._watcher, self._words = watcher, words
        self.process: subprocess.Popen[bytes] | None = None
        self.again = ""  # the command that makes the copy anew
        self.look, self.ended = watcher.look, watcher.ended

    def started(self, directory: RunDirectory) -> None:
        if self.process is None:  # a restarted run is still the same one
            to = [part for word in self._words for part in ("--to", word)]
            command = [sys.executable, "-m", "volary", "log", str(directory.path), *to, "--follow"]
            # a session of its own: Ctrl-C is for the training, and what it still records is copied
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
            self.again = " ".join(["volary log", directory.argument, *map(shlex.quote, to)])
        self._watcher.started(directory)

    def wait(self) -> bool:
        """Wait for the rest to be copied; whether nothing has failed so far."""
        with suppress(subprocess.TimeoutExpired):
            return self.process is None or self.process.wait(END_WITHIN_S) == 0
        return True


@contextmanager
def logged_beside(watcher: Watcher, words: Sequence[str]) -> Iterator[Watcher]:
    """A watcher that copies its run to the loggers that `words` name, meanwhile and until the end is copied.

    Raises BadInput, before anything starts, for loggers that there are not, or that cannot write. For a copy that fails
    later VolaryError once the run is over, unless that has raised itself.
    """
    if not words:
        yield watcher
        return
    read(words)
    logged = _Logged(watcher, words)
    try:
        yield logged
    except BaseException:
        logged.wait()
        raise
    if not logged.wait():
        raise VolaryError(f"the copy of the run is not whole; it can be made anew: {logged.again}")
