"""The page beside a run: a process of its own, which holds nothing up and ends with the one that started it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from volary.errors import VolaryError

_LEAVE_S = 1.0


@contextmanager
def served_beside(folder: Path) -> Iterator[str]:
    """Serve the runs of `folder` meanwhile, and afterwards until the last tab is closed; the link.

    Raises VolaryError if it cannot be served.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "volary", "ui", str(folder), "--with-stdin"]
    pipe = subprocess.PIPE
    # a session of its own: Ctrl-C is for the training, and the page shows how that ends
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            link = process.stdout.readline().strip()
            if not link:
                raise VolaryError(f"the page cannot be served: {process.stderr.read().strip()}")
            yield link
        finally:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # somebody still looks on
                process.wait(_LEAVE_S)


def when_stdin_closes(then: Callable[[], None]) -> None:
    """Call `then` when whoever started this process closes its stdin, or is gone."""

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        then()

    threading.Thread(target=wait, name="page-stdin", daemon=True).start()
