"""Resumes a run that has ended, with its settings or some of them changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from volary.driver.ending import Ending
from volary.driver.queued import follow, leave_queue
from volary.driver.servers.settings import roster_settings_of
from volary.driver.start import drive
from volary.driver.tasks.checks import check, with_room
from volary.driver.tasks.placing import engine_of
from volary.driver.tasks.submitting import is_queued, put_into_queue
from volary.driver.tasks.task import Task, task_of
from volary.errors import BadInput, RunError
from volary.errors.raised import shown
from volary.jobs.asked import QueueRequest
from volary.jobs.machinery import newest_attempt
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.run.control.watcher import Watcher
from volary.run.database.broken import set_broken_aside
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, replace_file
from volary.run.lock import RunLock
from volary.run.resuming import is_resumable
from volary.session.changing import FIXED_OF_LOOP, SettingChange, changes, planned_steps, refuse
from volary.session.script import Script
from volary.session.spec import Session

_LENGTH = ("train.epochs", "train.steps", "evaluate.patience")  # one of which makes a finished run longer


def resume(directory: RunDirectory, watcher: Watcher, overrides: Sequence[str] = (), *, anew: bool = False) -> Ending:
    """Resume a run from its newest whole checkpoint. Raises RunError if it is being written, or is finished.

    overrides: `a.b.c=value`; each change is an event of the run, and stays in its session file. Raises SessionError for
    one that cannot be made. A finished run is resumed if it becomes longer. Input that the workers refuse leaves the
    run as it was. anew: begin at step 0, as no checkpoint is whole; refused if one is.
    """
    leave_queue(directory)
    before, task = _tasks(directory, overrides)
    queued = is_queued(task)
    if isinstance(task, Session) and not queued:
        engine_of(directory, task).prepare(task.strategy.workers)
    task = task if queued else with_room(task)
    found = changes(before, task)
    with directory.lock() as lock:
        warnings = _checked(directory, task, found, anew=anew)
        if anew:
            _set_damaged_aside(directory)
        if not queued:
            return _drive(directory, lock, task, watcher, warnings, found)
    put_into_queue(directory, task, overrides=overrides)
    return follow(directory, watcher)


def submit_again(directory: RunDirectory, asked: QueueRequest, overrides: Sequence[str] = ()) -> None:
    """Queue a run that has ended, to be resumed as `resume` does, which it refuses alike; or one that never began."""
    leave_queue(directory)
    before, task = _tasks(directory, overrides)
    with directory.lock():
        if overrides or newest_attempt(directory) >= 0:
            _checked(directory, task, changes(before, task))
        else:
            check(task)
    put_into_queue(directory, task, asked, overrides)


def _tasks(directory: RunDirectory, overrides: Sequence[str]) -> tuple[Task, Task]:
    """The run's task as it is, and as it is to be."""
    before = task_of(directory)
    return before, type(before).read(directory.session, overrides) if overrides else before


def _checked(directory: RunDirectory, task: Task, found: list[SettingChange], *, anew: bool = False) -> list[str]:
    """Warnings of a run that is resumed with these changes. Raises BadInput or RunError if it cannot be."""
    set_broken_aside(directory)
    with RunReader(directory) as reader:
        info = reader.info()
    finished = info.get("state") == "finished"
    lost = _lost_end(directory, info, task, anew=anew) if finished else []
    if isinstance(task, Script):
        _refuse_loop(directory, info, task, found, over=finished and not lost)
    else:
        _refuse_session(directory, info, task, found, over=finished and not lost)
    return [*check(task), *lost]


def _drive(
    directory: RunDirectory,
    lock: RunLock,
    task: Task,
    watcher: Watcher,
    warnings: Sequence[str],
    found: list[SettingChange],
) -> Ending:
    if not found:
        return drive(directory, lock, task, watcher, warnings)
    text = directory.session.read_bytes()
    with RunReader(directory) as reader:
        info = reader.info()
    _write(directory, task.to_yaml().encode())
    try:
        return drive(directory, lock, task, watcher, warnings, found)
    except BadInput:
        _write(directory, text)
        with closing(Journal(directory.database)) as journal:
            journal.continue_attempt()
            journal.note(**{key: info.get(key, "") for key in ("state", "message", "error")})
            journal.event("unchanged", settings=[change.setting for change in found])
        raise


def _refuse_session(
    directory: RunDirectory, info: dict[str, str], session: Session, found: list[SettingChange], *, over: bool
) -> None:
    """Raise SessionError or RunError unless it can be resumed with these changes. over: it has all it ended with."""
    steps = Checkpoints(directory.checkpoints).steps()
    refuse(found, has_checkpoint=bool(steps))
    if not over:
        return
    done = int(info.get("steps_done") or info.get("steps_planned") or 0)
    how = f"to train longer: volary resume {directory.argument} train.epochs=N, or train.steps=N"
    if not steps:
        raise RunError(
            f"{directory.path} is finished, after {done} steps, and all its checkpoints are gone; to train it again: "
            f"volary train {shown(str(directory.session))} run.name=NAME"
        )
    if not any(change.setting in _LENGTH for change in found):
        raise RunError(f"{directory.path} is finished, after {done} steps; {how}")
    per_epoch = int(info.get("steps_per_epoch", 0))
    if per_epoch and (planned := planned_steps(session, per_epoch)) <= done:
        raise RunError(f"{directory.path} is finished after {done} steps, and would have {planned}; {how}")


def _lost_end(directory: RunDirectory, info: dict[str, str], task: Task, *, anew: bool) -> list[str]:
    """A warning, if a finished run has lost its last checkpoint. Raises RunError if all are damaged, unless `anew`."""
    checkpoints = Checkpoints(directory.checkpoints)
    whole, damaged = checkpoints.newest_whole()
    if whole is None:
        if damaged and not anew:
            raise checkpoints.none_whole(damaged)
        return ["the run had finished, but its checkpoints are damaged: it begins at step 0"] if damaged else []
    done = int(info.get("steps_done") or 0)
    if damaged:
        lost = " is damaged"
    elif isinstance(task, Session) and whole.step < done:  # a loop of one's own may end without saving
        lost = f", of step {done}, is gone"
    else:
        return []
    return [f"the run had finished, but its last checkpoint{lost}: it resumes from step {whole.step}"]


def _refuse_loop(
    directory: RunDirectory, info: dict[str, str], script: Script, found: list[SettingChange], *, over: bool
) -> None:
    """Raise SessionError or RunError unless a loop of the user's own can be resumed with these changes."""
    if over:
        raise RunError(f"{directory.path} is finished, after {info.get('steps_done') or 0} steps")
    if not is_resumable(directory):
        raise RunError(
            f"{directory.path} is a run of a training loop of your own, which has saved nothing; accepted: a loop "
            "that calls worker.save(...)"
        )
    _refuse_other_exchange(directory, script)
    refuse(found, has_checkpoint=True, fixed=FIXED_OF_LOOP)


def _refuse_other_exchange(directory: RunDirectory, script: Script) -> None:
    """Raise RunError if workers are to go on from what servers have written, or the other way round."""
    whole, _ = Checkpoints(directory.checkpoints).newest_whole()
    if whole is None:  # the workers say so
        return
    over_servers = ROSTER in whole.files
    if over_servers == (roster_settings_of(script) is None):
        was, now = ("server", "allreduce") if over_servers else ("allreduce", "server")
        raise RunError(
            f"{directory.path}: its checkpoints are those of a loop with exchange={was}, from which one with "
            f"exchange={now} cannot be resumed; accepted: exchange={was}"
        )


def _set_damaged_aside(directory: RunDirectory) -> None:
    checkpoints = Checkpoints(directory.checkpoints)
    whole, _ = checkpoints.newest_whole()
    if whole is not None:
        raise RunError(f"{directory.path}: its checkpoint of step {whole.step} is whole; resume it without --anew")
    checkpoints.set_aside_after(0)


def _write(directory: RunDirectory, text: bytes) -> None:
    try:
        replace_file(Disk(), directory.session, text)
    except OSError as error:
        raise RunError(f"{directory.session}: cannot be written: {error.strerror}") from None
