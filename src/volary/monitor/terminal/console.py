"""The view that `volary train` shows: chooses it, and keeps every fault of it away from the run."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TextIO

from volary.monitor.digest import Digest, Follower
from volary.monitor.notebook import Notebook, in_notebook
from volary.monitor.outline import outline
from volary.monitor.printed import Printed
from volary.monitor.terminal.live import Live
from volary.monitor.terminal.plain import Plain, Quiet
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory


class TerminalView(Protocol):
    """Draws digests. `close` gives back what it holds of the terminal, and may be called twice."""

    def show(self, digest: Digest) -> None:
        """Draw the run's present state."""

    def say(self, lines: Sequence[str]) -> None:
        """Write what the user's program has printed, above what is drawn."""

    def end(self, digest: Digest) -> None:
        """Draw the last picture of a run that has ended."""

    def close(self) -> None:
        """Give the terminal back."""


class Console:
    """Watches one run for the driver: a live view on a terminal or in a notebook, plain lines elsewhere.

    With `quiet` one line.
    A pure reader: whatever is wrong with the run directory, the stream or the terminal, no method here raises.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream or sys.stdout
        self._directory: RunDirectory | None = None
        self._follower: Follower | None = None
        self._view: TerminalView | None = None
        self._last: Digest | None = None
        self._printed: Printed | None = None

    def started(self, directory: RunDirectory) -> None:
        """The run exists, or another attempt at it; begin to show it."""
        self.left()
        self._directory = directory
        with contextlib.suppress(Exception):
            self._printed = _printed(directory)
        with contextlib.suppress(Exception):
            self._view = self._choose()
            # an exit that passes the driver by still leaves a usable terminal
            atexit.register(self._view.close)
        self.look()

    def look(self) -> None:
        """Read the run and show what is new."""
        self._say()
        with contextlib.suppress(Exception):
            if self._follower is None and self._directory is not None:
                self._follower = Follower(self._directory)
            if self._follower is not None and self._view is not None:
                self._last = self._follower.look()
                self._view.show(self._last)

    def ended(self, state: str | None = None, step: int | None = None) -> None:
        """The run is over: show the end and give the terminal back. state, step: if the run directory may not say."""
        self.look()
        if self._view is None:
            return
        self._say(last=True)
        with contextlib.suppress(Exception):
            if self._last is not None:
                last = self._last
                self._view.end(replace(last, state=state or last.state, step=max(last.step, step or 0)))
        self.left()

    def left(self) -> None:
        """Stop drawing and give the terminal back; the run may go on."""
        if self._view is None:
            return
        with contextlib.suppress(Exception):
            self._view.close()
        atexit.unregister(self._view.close)
        if self._follower is not None:
            self._follower.close()
        self._view = self._follower = None

    def _say(self, *, last: bool = False) -> None:
        with contextlib.suppress(Exception):
            if self._printed is not None and self._view is not None and (lines := self._printed.lines(last=last)):
                self._view.say(lines)

    def _choose(self) -> TerminalView:
        if self._quiet:
            return Quiet(self._stream)
        if in_notebook():
            return Notebook()
        can_redraw = self._stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")
        return Live(self._stream) if can_redraw else Plain(self._stream)


def _printed(directory: RunDirectory) -> Printed | None:
    """The printed output of a loop of the user's own; of a resumed run, what is new."""
    if not outline(directory.session).own_loop:
        return None
    log = directory.log(0)
    with RunReader(directory) as reader:
        begun = attempt_in(reader.info()) <= 0
    return Printed(log, 0 if begun or not log.exists() else log.stat().st_size)
