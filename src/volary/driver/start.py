"""Begin a run of a session on the engine that it names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from volary.comm.control.sealing import Security
from volary.driver.drive import Drive
from volary.driver.ending import Ending
from volary.driver.queued import follow
from volary.driver.servers.settings import keeper_host
from volary.driver.servers.storage import storage_of
from volary.driver.tasks.beginning import begin
from volary.driver.tasks.checks import check, check_place, with_room
from volary.driver.tasks.placing import engine_of, host_of, require_reached
from volary.driver.tasks.submitting import counted_here, is_queued, put_into_queue, remarks_of_queue
from volary.driver.tasks.task import Task, create
from volary.driver.watching.failure_detector import Rules
from volary.engine._base import Engine, Handle, Launch
from volary.errors import BadInput, ProgramEnded, ServerLost, WorkerLost
from volary.errors.raised import shown
from volary.run.checkpoints import Checkpoints
from volary.run.control.watcher import Watcher
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk
from volary.run.launch.meeting import Meeting
from volary.run.lock import RunLock
from volary.run.machine.open_files import allow_connections
from volary.session.changing import SettingChange
from volary.session.script import Script

WORKER = [sys.executable, "-m", "volary.worker"]
SESSION_JOB = "volary.train.worker.job:run_session"
PROGRAM_JOB = "volary.train.own.startup.run_program:run_program"


def start(task: Task, watcher: Watcher, prepare: Callable[[RunDirectory], object] = lambda _: None) -> Ending:
    """Make the run directory and train, here or as a job of a queue. Raises BadInput before the first step, and what
    `Drive.run` raises.

    prepare: adds to the new run's directory what it begins with. Input that the workers refuse, and a program that ends
    before it begins, leave no run: the name stays free.
    """
    task = with_room(task)
    if not (queued := is_queued(task)):
        task.engine.prepare(task.strategy.workers)
    warnings = check(task)
    check_place(task)
    directory = create(task)
    begun_with: list[int] = []
    try:
        prepare(directory)
        begun_with = Checkpoints(directory.checkpoints).steps()
        if queued:
            put_into_queue(directory, task)
            return follow(directory, watcher)
        with directory.lock() as lock:
            return drive(directory, lock, task, watcher, warnings)
    except (BadInput, ProgramEnded) as error:
        begun = isinstance(error, ProgramEnded) and error.begun
        if not begun and max(Checkpoints(directory.checkpoints).steps(), default=0) <= max(begun_with, default=0):
            with suppress(OSError):  # a store that fails meanwhile: what is wrong with the input matters more
                discard(Disk(), directory.path)
                error.add_note(f"{shown(str(directory.path))} was removed, as nothing was trained in it")
        raise


def rules_of(task: Task) -> Rules:
    """The bounds on silence and lack of progress that a session sets."""
    strategy = task.strategy
    return Rules(
        strategy.suspect_after_s,
        strategy.give_up_after_s,
        strategy.startup_timeout_s,
        strategy.stuck_after_s,
        own_loop=isinstance(task, Script),
        spares=strategy.spares,
        between=strategy.between,
        wait_for_driver_s=strategy.wait_for_driver_s,
        standby=strategy.standby,
        keeper_host=keeper_host(strategy),
    )


def drive(
    directory: RunDirectory,
    lock: RunLock,
    task: Task,
    watcher: Watcher,
    warnings: Sequence[str] = (),
    changes: Sequence[SettingChange] = (),
) -> Ending:
    """Drive a run whose lock is held, with as many restarts as its engine allows, and one after each thaw.

    warnings, and changes of its settings since its last attempt: recorded with its start.
    """
    engine = engine_of(directory, task)
    require_reached(engine, task)
    # each worker beats, meets at the board from a thread or two, and asks the roster
    allow_connections(4 * task.strategy.processes)

    def launch(meeting: Meeting) -> Handle:
        return engine.launch(launch_of_workers(directory, task, meeting))

    begin(directory, task)
    warnings = [*warnings, *remarks_of_queue(directory)]
    restarts = 0
    with counted_here(directory, task):
        while True:
            one = drive_of(directory, lock, task, watcher, host_of(task, engine), engine)
            try:
                ending = one.run(launch, warnings, changes)
                if ending.state != "thawed":
                    return ending
                warnings, changes = [], []
            except (WorkerLost, ServerLost) as lost:
                if restarts == engine.max_restarts or one.asked_to_end:
                    raise
                restarts += 1
                warnings = [f"restart {restarts} of {engine.max_restarts}: {str(lost).splitlines()[0]}"]
                changes = []


def launch_of_workers(directory: RunDirectory, task: Task, meeting: Meeting) -> Launch:
    """All workers of a run, for its engine."""
    command, job = WORKER, SESSION_JOB
    if isinstance(task, Script):
        job = "volary.train.own.startup.run_script:run_script" if task.function else PROGRAM_JOB
        # the file of a function may read its arguments while it is imported
        command = [*command, *(task.arguments if task.function else [])]
    count = task.strategy.workers + task.strategy.spares
    return Launch(
        role="worker",
        directory=directory,
        command=command,
        count=count,
        meeting=meeting,
        job=job,
        interface=task.strategy.interface,
        spares=task.strategy.spares,
    )


def drive_of(directory: RunDirectory, lock: RunLock, task: Task, watcher: Watcher, host: str, engine: Engine) -> Drive:
    """One attempt of the task's run, whose lock is held and which listens on `host`. engine: starts its servers."""
    security: Security = "always" if task.strategy.security == "always" else "encrypted"
    workers, rules = task.strategy.workers + task.strategy.spares, rules_of(task)
    return Drive(directory, lock, workers, rules, watcher, storage_of(directory, task, engine), host, security)
