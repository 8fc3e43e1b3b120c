"""Records an attempt at a run: how it began, with which settings changed, and how it ended."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict

import volary
from volary.driver.ending import Ending
from volary.errors import Stopped, VolaryError
from volary.run.checkpoints import Checkpoints
from volary.run.control.requests import forget_requests
from volary.run.control.stopping import forget_request
from volary.run.database.journal import Journal
from volary.run.database.kept_contributions import KeptContributions
from volary.run.directory import RunDirectory
from volary.run.machine import clock
from volary.session.changing import SettingChange


class AttemptRecord:
    """In the run's database, by this process alone. state, step: how the attempt ended; failed until that is known.

    goes_on: another attempt follows at once.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.journal = Journal(directory.database, behind=True)
        self.state: str = "failed"
        self.step: int | None = None
        self.goes_on = False

    def begin(
        self,
        workers: int,
        contributions: KeptContributions | None,
        warnings: Sequence[str],
        changes: Sequence[SettingChange],
    ) -> None:
        """The attempt begins with so many workers. contributions: as of `Storage`. The rest: to record with it."""
        journal, newest = self.journal, Checkpoints(self._directory.checkpoints).steps()
        attempt = journal.start_attempt(newest[-1] if newest else 0, contributions)
        us = json.dumps([os.getpid()])  # workers follow as they come; those of an earlier attempt are gone
        journal.note(state="running", started_at=clock.now_s(), workers=workers, message="", error="", pids=us)
        journal.note(driver=_this_process())
        journal.event("started", workers=workers)
        if attempt and not newest:
            journal.event("warning", text="the run has no checkpoint yet: training begins at step 0")
        for text in warnings:
            journal.event("warning", text=text)
        for change in changes:
            journal.event("changed", None, newest[-1] if newest else 0, **asdict(change))

    def take_over(self, attempt: int) -> None:
        """The attempt goes on with the workers of this one, whose driver is lost. Raises as `Journal.take_over`."""
        self.journal.take_over(attempt)
        self.journal.note(state="running", message="", error="", pids=json.dumps([os.getpid()]))
        self.journal.note(driver=_this_process())
        self.journal.event("taken_over", pid=os.getpid(), host=socket.gethostname())

    def failed(self, error: BaseException, reached: Callable[[], int]) -> None:
        """The attempt ends with this error, of the run or of the driver. reached: gives the newest step of a worker."""
        if not isinstance(error, VolaryError):
            self._end(f"the driver failed: {type(error).__name__}: {error}")
            return
        self.journal.note(error=type(error).__name__, exit_code=error.exit_code)
        self.state = "stopped" if isinstance(error, Stopped) else "failed"
        self.step = reached()
        self._end(str(error))

    def ended(self, ending: Ending) -> None:
        """The attempt has ended as it should; the run itself has not where another follows."""
        self.goes_on, self.state, self.step = ending.state == "thawed", ending.state, ending.step
        if not self.goes_on:
            self._end(ending.message, ending.step)

    def close(self) -> None:
        """Write no more, and forget what this attempt was asked."""
        replaced = self.journal.replaced
        self.journal.close()
        if not replaced:
            forget_request(self._directory)
            forget_requests(self._directory)

    def _end(self, message: str, step: int | None = None) -> None:
        done = {} if step is None else {"steps_done": step}
        self.journal.event(self.state, message=message, step=step)
        self.journal.end(state=self.state, message=message, ended_at=clock.now_s(), **done)


def _this_process() -> str:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "version": volary.__version__})
