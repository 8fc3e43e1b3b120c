"""A driver that takes the place of a lost one, beside the workers of that: at once, or as soon as it is lost."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import volary
from volary.comm.control.connection import Connection
from volary.comm.control.errors import KeyRefused, NobodyThere, OtherAttempt
from volary.driver.drive import Drive
from volary.driver.ending import Ending
from volary.driver.servers.storage import storage_of
from volary.driver.start import rules_of
from volary.driver.tasks.placing import host_of
from volary.driver.tasks.submitting import counted_here
from volary.driver.tasks.task import Task, task_of
from volary.engine.processes.others_workers import OthersWorkers
from volary.errors import RunError, VolaryError
from volary.run.control.watcher import Watcher
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, announced
from volary.run.machine.open_files import allow_connections

LOOK_S = 0.25
ANSWERS_WITHIN_S = 2.0
REFUSED_S = 1.0  # a driver that ends in order forgets its address before it stops to listen


def take_over(directory: RunDirectory, watcher: Watcher) -> Ending:
    """Drive a run to its end in place of its driver, which is lost, with the workers that it has left.

    Raises RunError if it is not lost, or has left nobody who waits, and what `Drive.run` raises.
    """
    task = _replaceable(directory)
    meeting = announced(directory)
    if meeting is None:
        raise RunError(f"{directory.path} is starting or ending: its driver has no address (any more)")
    if not _is_lost(directory, meeting, task.strategy.give_up_after_s):
        raise RunError(
            f"{directory.path} is driven by {_driver(directory)[0]}, which answers; follow it: "
            f"volary attach {directory.argument}"
        )
    return _drive(directory, task, meeting, watcher)


def stand_by(directory: RunDirectory, watcher: Watcher, lost: Callable[[], object]) -> Ending | None:
    """Do so once the driver is lost, and call `lost` before; None: the run has ended without that. Raises as that."""
    task = _replaceable(directory)
    while (meeting := announced(directory)) is not None and directory.is_live():
        if _is_lost(directory, meeting, task.strategy.give_up_after_s):
            lost()
            return _drive(directory, task, meeting, watcher)
        time.sleep(LOOK_S)
    return None


def _replaceable(directory: RunDirectory) -> Task:
    """The run's task. Raises RunError if its driver cannot be replaced from here."""
    task, resume = task_of(directory), f"resume it: volary resume {directory.argument}"
    with RunReader(directory) as reader:
        state = reader.info().get("state", "new")
    if state != "running":
        raise RunError(f"{directory.path} is over ({state}); {resume}")
    if not task.strategy.wait_for_driver_s:
        raise RunError(
            f"{directory.path}: strategy.wait_for_driver_s is 0, so that its workers save and end without their "
            f"driver; {resume}"
        )
    if not directory.is_live():
        raise RunError(f"{directory.path} has neither a driver nor workers any more; {resume}")
    words, host, version = _driver(directory)
    if host != socket.gethostname():
        raise RunError(f"{directory.path} has its workers on host {host}, where {words} was; drive it there")
    if version != volary.__version__:
        raise RunError(
            f"{directory.path} was begun by Volary {version}, and this is {volary.__version__}; drive it with that, or "
            f"stop it (volary stop {directory.argument}) and {resume}"
        )
    return task


def _driver(directory: RunDirectory) -> tuple[str, str, str]:
    """The driver that the run had last, in words; its host, and its version of Volary."""
    with RunReader(directory) as reader:
        noted = json.loads(reader.info().get("driver", "{}"))
    pid, host, version = (str(noted.get(name, "?")) for name in ("pid", "host", "version"))
    return f"process {pid} on host {host}", host, version


def _is_lost(directory: RunDirectory, meeting: Meeting, silence_s: float) -> bool:
    """Whether a driver does not answer for so long, or nothing listens any more where it did; at once if it does."""
    begun, refused = time.monotonic(), None
    key = directory.key()
    while True:
        try:
            Connection.open(meeting.host, meeting.port, key, "board", {}, meeting.attempt_id, ANSWERS_WITHIN_S).close()
        except (NobodyThere, KeyRefused, OtherAttempt):  # or somebody else has its port
            refused = refused or time.monotonic()
            if time.monotonic() - refused > REFUSED_S:
                return True
        except VolaryError:
            if time.monotonic() - begun > silence_s:
                return True
        else:
            return False
        if announced(directory) != meeting:
            return False
        time.sleep(LOOK_S)


def _drive(directory: RunDirectory, task: Task, meeting: Meeting, watcher: Watcher) -> Ending:
    strategy = task.strategy
    allow_connections(4 * strategy.processes)
    lock, rules = directory.lock(), replace(rules_of(task), replaces=meeting.attempt)
    host, storage = host_of(task, task.engine), storage_of(directory, task, task.engine)
    drive = Drive(
        directory,
        lock,
        strategy.workers + strategy.spares,
        rules,
        watcher,
        storage,
        host,
        "always" if strategy.security == "always" else "encrypted",
    )
    with counted_here(directory, task):
        try:
            return drive.run(lambda _: OthersWorkers(lambda: drive.workers_here))
        finally:
            lock.release()
