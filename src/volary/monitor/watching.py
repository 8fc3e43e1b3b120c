"""Follows a run from another process to its end, and says how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from volary.errors import RunError, Stopped
from volary.monitor.digest import Digest, Follower
from volary.monitor.terminal.console import Console
from volary.monitor.wording import clean
from volary.run.control.requests import LeaveRun, Request, ask
from volary.run.database.reader import Event, RunReader, attempt_in
from volary.run.directory import RunDirectory

LOOK_S = 0.25
ANSWER_S = 30.0  # after which a driver that was asked to stop should have said that it does


def follow(directory: RunDirectory, console: Console) -> Digest:
    """Show the run until nobody drives it any more, however long that takes; how it ended."""
    console.started(directory)
    try:
        while directory.is_live():
            time.sleep(LOOK_S)
            console.look()
        console.ended()
    finally:
        console.left()
    return ending(directory)


def wait_until_stopped(directory: RunDirectory) -> None:
    """Wait for a run that was asked to stop. Raises RunError if its driver does not answer."""
    with RunReader(directory) as reader:
        attempt = attempt_in(reader.info())
        until = time.monotonic() + ANSWER_S
        while directory.is_live():
            answered = any(event.attempt == attempt for event in reader.events(kind="stopping"))
            if not answered and time.monotonic() > until:
                raise RunError(
                    f"{directory.path}: its driver has not answered for {ANSWER_S:.0f} s: it was suspended, or killed; "
                    "workers that it left end by themselves"
                )
            time.sleep(LOOK_S)


def wait_for(
    directory: RunDirectory,
    request: Request | LeaveRun,
    kinds: Sequence[str],
    answers: Callable[[Event], bool] = lambda _: True,
) -> Event:
    """Ask a run for something, and wait until it tells of it by an event of one of `kinds` that `answers`.

    Raises RunError if nobody runs it, or its driver does not answer, or the run ends before.
    """
    with RunReader(directory) as reader:
        newest = max((event.id for event in reader.events()), default=0)
        ask(directory, request)
        until = time.monotonic() + ANSWER_S
        while True:
            live = directory.is_live()
            found = list(reader.events(after=newest))
            if event := next((one for one in found if one.kind in kinds and answers(one)), None):
                return event
            if not live:
                raise RunError(f"{directory.path} has ended meanwhile")
            if not found and time.monotonic() > until:
                raise RunError(f"{directory.path}: its driver has not answered for {ANSWER_S:.0f} s")
            time.sleep(LOOK_S)


def ask_to_leave(directory: RunDirectory, request: LeaveRun, kinds: Sequence[str]) -> Event:
    """Ask the run's driver to let a worker leave; the first event of one of `kinds` that follows for this worker.

    Raises RunError with what the driver says if it cannot be, and as `wait_for` does.
    """

    def answers(event: Event) -> bool:
        return event.rank == request.rank and (event.kind != "warning" or "asked to " in event.data.get("text", ""))

    event = wait_for(directory, request, (*kinds, "warning"), answers)
    if event.kind == "warning":
        raise RunError(clean(event.data["text"]))
    return event


def ending(directory: RunDirectory) -> Digest:
    """The state of a run now, and how it ended if it did."""
    with closing(Follower(directory)) as follower:
        return follower.look()


def exit_code(digest: Digest) -> int:
    """The status with which the command that trained has ended, by its record."""
    if digest.state in ("finished", "stopped"):
        return Stopped.exit_code if digest.state == "stopped" else 0
    return digest.exit_code
