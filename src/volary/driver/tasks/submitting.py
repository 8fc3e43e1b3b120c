"""Puts runs into a queue: the engine's where it has one, else this machine's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from volary.driver.queued import leave_queue, queue_of, submit
from volary.driver.tasks.checks import check, check_place
from volary.driver.tasks.task import Task, create, task_of
from volary.engine.local import LocalEngine
from volary.errors import BadInput, RunError, VolaryError
from volary.jobs.asked import QueueRequest
from volary.jobs.entry import Demand
from volary.jobs.machinery import capacity_here, newest_attempt
from volary.jobs.queue import LocalQueue
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk
from volary.session.script import Script


def submit_task(
    task: Task, asked: QueueRequest, prepare: Callable[[RunDirectory], object] = lambda _: None
) -> RunDirectory:
    """Make the directory of a run of `task` and queue it. Raises BadInput, with nothing made, for what cannot be run.

    prepare: adds to the new directory what the run begins with.
    """
    check(task)
    check_place(task)
    demand = _demand(task, asked)
    asked.runs_before()
    directory = create(task)
    try:
        prepare(directory)
        _submit(directory, task, asked, demand, -1)
    except VolaryError:
        with suppress(OSError):
            discard(Disk(), directory.path)
        raise
    return directory


def submit_again(directory: RunDirectory, asked: QueueRequest) -> None:
    """Queue a run that has ended and can be resumed. Raises RunError for one that is finished, or is in a queue."""
    leave_queue(directory)
    task = task_of(directory)
    with RunReader(directory) as reader:
        state = reader.state()
    if state in ("running", "finished"):
        raise RunError(f"{directory.path} is {state}; accepted: a run that is stopped, lost, failed or new")
    check(task)
    _submit(directory, task, asked, _demand(task, asked), newest_attempt(directory))


def _submit(directory: RunDirectory, task: Task, asked: QueueRequest, demand: Demand, attempt: int) -> None:
    if (queue := queue_of(task.engine)) is None:
        LocalQueue().submit(directory, asked, demand, attempt)
    else:
        submit(directory, queue, task.strategy.workers)


def _demand(task: Task, asked: QueueRequest) -> Demand:
    """What it takes of this machine. Raises BadInput if that has less, or if the engine's own queue takes none."""
    if queue_of(task.engine) is not None:
        if asked != QueueRequest():
            raise BadInput("the engine has a queue of its own, which takes none of these; accepted: settings of engine")
        return Demand()
    here = capacity_here()
    workers = task.strategy.workers if isinstance(task.engine, LocalEngine) else 1  # else they are elsewhere
    device = task.device if isinstance(task, Script) else task.train.device
    on_gpus = device == "cuda" or (device == "auto" and workers <= len(here.gpus))
    demand = asked.demand(workers, len(here.cores), int(on_gpus))
    if refusal := here.refusal(demand):
        raise BadInput(f"the run {refusal}; accepted: what this machine has")
    return demand
