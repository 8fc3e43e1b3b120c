"""Begin a run of a session on the engine that it names."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from volary.comm.control.sealing import Security
from volary.comm.topology.topology import Topology
from volary.data.idle import refuse_idle_workers
from volary.driver.drive import Drive, Storage
from volary.driver.ending import Ending
from volary.driver.queued import follow, queue_of, submit
from volary.driver.server_group import NoServers, ServerGroup
from volary.driver.watching.failure_detector import Rules
from volary.engine._base import Engine, Handle, Launch
from volary.engine.local import LocalEngine
from volary.errors import BadInput, ProgramEnded, RunError, ServerLost, SettingError, WorkerLost
from volary.errors.raised import shown
from volary.monitor.outline import outline
from volary.run.checkpoint_files.store import writable
from volary.run.checkpoints import Checkpoints
from volary.run.control.watcher import Watcher
from volary.run.database.journal import Journal
from volary.run.database.kept_contributions import KeptContributions
from volary.run.directory import RunDirectory, discard, exists_already
from volary.run.disk import Disk, refuse_unwritable, replace_file
from volary.run.launch.meeting import Meeting
from volary.run.lock import RunLock
from volary.run.machine.addresses import address_of
from volary.run.machine.open_files import allow_connections
from volary.session.changing import SettingChange
from volary.session.script import Script
from volary.session.spec import Session
from volary.session.values.url import Url

WORKER = [sys.executable, "-m", "volary.worker"]
SESSION_JOB = "volary.train.worker.job:run_session"
PROGRAM_JOB = "volary.train.own.startup.run_program:run_program"
Task = Session | Script  # what a run is a run of


def start(task: Task, watcher: Watcher, files: Mapping[str, bytes] | None = None) -> Ending:
    """Make the run directory and train, here or as a job of the engine's queue. Raises BadInput before the first step,
    and what `Drive.run` raises.

    files: to lay into the run's directory. Input that the workers refuse, and a program that ends before it begins,
    leave no run: the name stays free.
    """
    task.engine.prepare(task.strategy.workers)
    warnings = check(task)
    check_place(task)
    directory = create(task)
    try:
        for name, data in (files or {}).items():
            replace_file(Disk(), directory.path / name, data)
        if (queue := queue_of(task.engine)) is not None:
            submit(directory, queue, task.strategy.workers)
            return follow(directory, watcher)
        with directory.lock() as lock:
            return drive(directory, lock, task, watcher, warnings)
    except (BadInput, ProgramEnded) as error:
        begun = isinstance(error, ProgramEnded) and error.begun
        if not begun and not Checkpoints(directory.checkpoints).steps():
            with suppress(OSError):  # a store that fails meanwhile: what is wrong with the input matters more
                discard(Disk(), directory.path)
                error.add_note(f"{shown(str(directory.path))} was removed, as nothing was trained in it")
        raise


def session_of(directory: RunDirectory) -> Session:
    """The session that the run is a run of. Raises RunError if it is missing, or the loop was the user's own."""
    try:
        text = directory.session.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise directory.unreadable(directory.session, error) from None
    if text.startswith(("function:", "program:")):
        raise RunError(f"{directory.path} is a run of a training loop of your own; accepted: a run of a session")
    return Session.read(directory.session)


def task_of(directory: RunDirectory) -> Task:
    """What the run is a run of. Raises RunError if that cannot be read."""
    own = outline(directory.session).own_loop
    return Script.read(directory.session) if own else session_of(directory)


def check(task: Task) -> list[str]:
    """What can be known before a run directory is made, and without torch. Returns warnings. Raises BadInput."""
    check_input(task)
    workers = task.strategy.workers
    if (reason := task.engine.check(workers)) is not None:
        raise BadInput(f"engine: {reason}")
    try:  # the workers of a machine are one node; of others it is known once they meet
        task.strategy.exchange.check(Topology.of(range(workers)) if isinstance(task.engine, LocalEngine) else None)
    except SettingError as error:
        raise BadInput(f"strategy.exchange: {error}") from None
    if task.strategy.interface and queue_of(task.engine) is None:
        address_of(task.strategy.interface)
    return [*task.strategy.remarks, *task.engine.warnings(workers)]


def check_place(task: Task) -> None:
    """Whether `create` can make a run of the task, by trying and leaving nothing. Raises BadInput."""
    folder, there = Path(task.run.folder), task.checkpoint.path
    refuse_unwritable("run.folder", folder, make=True)
    if isinstance(there, Path):
        refuse_unwritable("checkpoint.path", there, make=True)
    if task.run.name is not None and (folder / task.run.name).exists():
        raise exists_already(folder / task.run.name)


def check_input(task: Task) -> None:
    """What can be known of a task whoever starts its workers. Raises BadInput."""
    task.check()
    if isinstance(task.checkpoint.path, Url):
        writable(str(task.checkpoint.path))
    if isinstance(task, Session) and hasattr(task.data.source, "count"):
        count = task.data.source.count("train")
        refuse_idle_workers(task.strategy.workers, task.data.batch_size, count)


def create(task: Task) -> RunDirectory:
    """Make the run directory of `task`, named by the session or with the first free number. Raises RunError."""
    path = task.checkpoint.path
    checkpoints = str(path) if isinstance(path, Url) else path
    name, text = task.run.name, task.to_yaml()
    return RunDirectory.create(Path(task.run.folder), name, stem(task), text, checkpoints=checkpoints)


def rules_of(task: Task) -> Rules:
    """The bounds on silence and lack of progress that a session sets."""
    strategy = task.strategy
    return Rules(
        strategy.suspect_after_s,
        strategy.give_up_after_s,
        strategy.startup_timeout_s,
        strategy.stuck_after_s,
        own_loop=isinstance(task, Script),
        keeper_host=socket.gethostname() if strategy.servers else "",
    )


def drive(
    directory: RunDirectory,
    lock: RunLock,
    task: Task,
    watcher: Watcher,
    warnings: Sequence[str] = (),
    changes: Sequence[SettingChange] = (),
) -> Ending:
    """Drive a run whose lock is held, with as many restarts as its engine allows.

    warnings, and changes of its settings since its last attempt: recorded with its start.
    """
    engine: Engine = task.engine
    # each worker beats, meets at the board from a thread or two, and asks the roster
    allow_connections(4 * task.strategy.processes)

    def launch(meeting: Meeting) -> Handle:
        return engine.launch(launch_of_workers(directory, task, meeting))

    restarts = 0
    while True:
        one = drive_of(directory, lock, task, watcher, host_of(task), engine)
        try:
            return one.run(launch, warnings, changes)
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
    count = task.strategy.workers
    return Launch(
        role="worker",
        directory=directory,
        command=command,
        count=count,
        meeting=meeting,
        job=job,
        interface=task.strategy.interface,
    )


def host_of(task: Task) -> str:
    """The address of this machine that the driver listens on. Raises BadInput if it has none such."""
    engine: Engine = task.engine
    return address_of(task.strategy.interface) if task.strategy.interface else engine.host()


def drive_of(directory: RunDirectory, lock: RunLock, task: Task, watcher: Watcher, host: str, engine: Engine) -> Drive:
    """One attempt of the task's run, whose lock is held and which listens on `host`. engine: starts its servers."""

    def servers(journal: Journal) -> ServerGroup:
        if task.strategy.servers:
            from volary.driver.servers.roster_and_servers import RosterAndServers

            return RosterAndServers(directory, task, journal, engine)
        return NoServers()

    def counts(checkpoints: Checkpoints) -> None:
        checkpoints.keep(task.checkpoint.keep_last, keep_best=task.checkpoint.keep_best)

    def contributions() -> KeptContributions | None:
        checkpoints = Checkpoints(directory.checkpoints)
        if not checkpoints.steps():
            return None
        # of servers perhaps, whatever the run goes on with
        from volary.driver.servers.checkpoint_drafts import contributions_in

        return contributions_in(checkpoints)

    security: Security = "always" if task.strategy.security == "always" else "encrypted"
    workers, rules = task.strategy.workers, rules_of(task)
    return Drive(directory, lock, workers, rules, watcher, Storage(servers, contributions, counts), host, security)


def stem(task: Task) -> str:
    """What an unnamed run is called, before its number: network and source, or the function or program."""
    if isinstance(task, Script):
        return task.name
    settings = task.settings()
    network = str(settings.get("network.name") or settings["network"])
    if ":" not in network:  # of the zoo
        network += str(settings.get("network.depth", ""))
    source = str(settings.get("data.source.name") or settings["data.source"])
    return f"{_plain(network)}-{_of_files(settings) or _plain(source)}"


def _of_files(settings: Mapping[str, Any]) -> str:
    """What the source's files are called: three data sets may all be `idx`."""
    folder, path = settings.get("data.source.folder"), settings.get("data.source.path")
    name = Path(folder).name if isinstance(folder, str) else Path(path).stem if isinstance(path, str) else ""
    return re.sub(r"[^\w-]+", "-", name.lower()).strip("-")


def _plain(name: str) -> str:
    """A plug-in's name, or the last part of a reference to the user's code."""
    return name.partition(" in ")[0].rpartition(":")[2].replace(".", "-").lower()
