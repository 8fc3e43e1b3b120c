"""The page beside a run: a process of its own, which holds nothing up and ends with the one that started it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from volary.errors import VolaryError
from volary.run.control.watcher import Watcher
from volary.run.directory import RunDirectory

_LEAVE_S = 1.0


class _Linked:
    """Hands everything on to `watcher`, and says where the run is shown, once its name is known."""

    def __init__(self, watcher: Watcher, link: str, notify: Callable[[str], object]) -> None:
        self._watcher, self._link, self._notify = watcher, link, notify
        self.look, self.ended = watcher.look, watcher.ended

    def started(self, directory: RunDirectory) -> None:
        if self._link:  # a restarted run is still the same one
            self._notify(f"page      {self._link}{fragment(directory)}")
            self._link = ""
        self._watcher.started(directory)


def fragment(directory: RunDirectory) -> str:
    """The part after the link of a page that shows this run, if the page serves the run or its folder."""
    return f"#/run/{quote(directory.name)}"


@contextmanager
def served_beside(watcher: Watcher, folder: Path, notify: Callable[[str], object]) -> Iterator[Watcher]:
    """Serve the runs of `folder` meanwhile, and afterwards until the last tab is closed.

    The watcher that this gives says the link to its own run. Raises VolaryError if it cannot be served.
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
            yield _Linked(watcher, link, notify)
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
