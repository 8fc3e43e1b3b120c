"""A second driver of a run beside the first: it waits, and takes the first one's place once that is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from volary.run.directory import RunDirectory
from volary.run.lock import RunLock

STANDBY = [sys.executable, "-m", "volary", "attach", "--standby", "--quiet"]
END_WITHIN_S = 5.0


@contextmanager
def standing_by(directory: RunDirectory, lock: RunLock, *, wanted: bool) -> Iterator[None]:
    """Have one in a process of its own meanwhile, if it is wanted; it ends with this driver unless that is lost."""
    if not wanted:
        yield
        return
    process = subprocess.Popen(
        [*STANDBY, str(directory.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is for the driver to answer
    )
    try:
        yield
    finally:
        if not lock.is_taken_over:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_WITHIN_S)
            process.kill()
            process.wait()
