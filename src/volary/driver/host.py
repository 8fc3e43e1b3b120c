"""The driver of a run whose workers somebody else starts: `python -m volary.driver.host`, started by rank 0.

It reads one line, which run and where to listen, and prints one, where workers meet it. It ends with the run, or some
seconds after its standard input has ended, as rank 0 is gone then.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

from volary.driver.drive import LEAVE_S
from volary.driver.ending import NoWatcher
from volary.driver.start import drive_of
from volary.driver.tasks.beginning import begin
from volary.driver.tasks.checks import check_input
from volary.driver.tasks.task import Task, create, task_of
from volary.engine._base import Exited
from volary.engine.local import LocalEngine
from volary.errors import Stopped, VolaryError, WorkerLost
from volary.errors.interruption import raise_when_interrupted
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.launched import note_launch
from volary.run.launch.meeting import Meeting, announce, forget
from volary.run.lock import RunLock
from volary.session.script import Script
from volary.session.spec import Session

LOCK_WAIT_S = LEAVE_S + 5.0  # the host of an earlier attempt may still be writing its last words


class LauncherWorkers:
    """Workers that a launcher has started: their connections show how they end. hosts: of each, if known."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self._hosts = dict(enumerate(hosts))

    def pids(self) -> dict[int, int]:
        return {}

    def children(self) -> list[int]:
        return []

    def hosts(self) -> dict[int, str]:
        return self._hosts

    def running(self) -> set[int]:
        return set()

    def ended(self) -> None:
        """The launcher is not ours to watch."""

    def events(self) -> list[Exited]:
        """Exits are the launcher's to see."""
        return []

    def ask_to_end(self) -> None:
        """Do nothing: their own launcher asks them to end."""

    def kill(self, number: int) -> None:
        """Do nothing: the worker ends itself, or with its launcher."""

    def stop(self, grace_s: float) -> None:
        """Do nothing: their own launcher ends them."""


def main() -> int:
    """Host the run that the first line of standard input names or describes; returns the exit code."""
    raise_when_interrupted()
    try:
        wish = json.loads(sys.stdin.readline())
        directory = _directory(wish)
        task = task_of(directory)
        with _locked(directory) as lock:
            begin(directory, task)
            drive = drive_of(directory, lock, task, NoWatcher(), wish["address"], LocalEngine())
            threading.Thread(target=_end_with_rank_0, name="leash", daemon=True).start()
            try:
                ending = drive.run(lambda meeting: _announce(directory, meeting, wish["hosts"]))
            finally:
                forget(directory)
            if ending.state == "thawed":  # it is the launcher's to start workers
                with closing(Journal(directory.database)) as journal:
                    journal.continue_attempt()
                    journal.note(state="stopped")
    except VolaryError as error:
        print(error.report, file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:  # before it drove the run
        return Stopped.exit_code
    print(f"{ending.state} after step {ending.step}: {directory.path}", file=sys.stderr, flush=True)
    return 0 if ending.state == "finished" else Stopped.exit_code


def _directory(wish: dict[str, Any]) -> RunDirectory:
    if "run" in wish:
        return RunDirectory.existing(wish["run"])
    task: Task
    if "program" in wish:
        task = Script.of_program(wish["program"], wish["arguments"], wish["overrides"])
    else:
        task = Session.read(wish["session"], wish["overrides"])
    check_input(task)
    directory = create(task)
    if wish["launch"]:
        note_launch(directory, wish["launch"])
    return directory


@contextmanager
def _locked(directory: RunDirectory) -> Iterator[RunLock]:
    deadline = time.monotonic() + LOCK_WAIT_S
    while directory.is_live() and time.monotonic() < deadline:
        time.sleep(0.05)
    with directory.lock() as lock:
        yield lock


def _announce(directory: RunDirectory, meeting: Meeting, hosts: Sequence[str]) -> LauncherWorkers:
    announce(directory, meeting)
    print(json.dumps(asdict(meeting) | {"run": str(directory.path)}), flush=True)
    return LauncherWorkers(hosts)


def _end_with_rank_0() -> None:
    sys.stdin.read()
    time.sleep(LEAVE_S)
    os._exit(WorkerLost.exit_code)


if __name__ == "__main__":
    sys.exit(main())
