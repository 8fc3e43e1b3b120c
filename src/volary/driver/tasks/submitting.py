"""Puts runs into a queue: the engine's where it has one, else this machine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from volary.driver.queued import queue_of, submit
from volary.driver.tasks.checks import check, check_place
from volary.driver.tasks.task import Task, create
from volary.engine.local import LocalEngine
from volary.errors import BadInput, VolaryError
from volary.jobs.asked import QueueRequest
from volary.jobs.entry import Demand
from volary.jobs.machinery import capacity_here
from volary.jobs.memory import known_bytes
from volary.jobs.queue import LocalQueue
from volary.jobs.settings import queues_all_runs
from volary.jobs.unqueued import counted
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk
from volary.run.machine.cores import cores_here, share_of
from volary.run.machine.gpus import gpus_here
from volary.session.script import Script


def is_queued(task: Task) -> bool:
    """Whether a run of it that begins here waits in a queue: its engine's, or this machine's as its user wants that."""
    return queue_of(task.engine) is not None or queues_all_runs()


def submit_task(
    task: Task, asked: QueueRequest, prepare: Callable[[RunDirectory], object] = lambda _: None
) -> RunDirectory:
    """Make the directory of a run of `task` and queue it. Raises BadInput, with nothing made, for what cannot be run.

    prepare: adds to the new directory what the run begins with.
    """
    check(task)
    check_place(task)
    directory = create(task)
    try:
        prepare(directory)
        put_into_queue(directory, task, asked)
    except VolaryError:
        with suppress(OSError):
            discard(Disk(), directory.path)
        raise
    return directory


def put_into_queue(
    directory: RunDirectory, task: Task, asked: QueueRequest | None = None, overrides: Sequence[str] = ()
) -> None:
    """Queue a run, whose settings are changed as it is resumed. Raises BadInput if that cannot be."""
    asked = asked or QueueRequest()
    demand = _demand(task, asked)
    if (queue := queue_of(task.engine)) is None:
        LocalQueue().submit(directory, asked, demand, overrides)
    else:
        submit(directory, queue, task.strategy.workers, overrides)


def _demand(task: Task, asked: QueueRequest) -> Demand:
    """The run's demand on this machine. Raises BadInput if that has less, or if the engine's own queue takes none."""
    if queue_of(task.engine) is not None:
        if asked != QueueRequest():
            raise BadInput("the engine has a queue of its own, which takes none of these; accepted: settings of engine")
        return Demand()
    here = capacity_here()
    workers = task.strategy.workers if isinstance(task.engine, LocalEngine) else 1  # else they are elsewhere
    on_gpus = _is_on_gpus(task, workers, len(here.gpus))
    demand = asked.demand(workers, len(here.cores), int(on_gpus), known_bytes(task.to_yaml()))
    if refusal := here.refusal(demand):
        raise BadInput(f"the run {refusal}; accepted: what this machine has")
    return demand


def counted_here(directory: RunDirectory, task: Task) -> AbstractContextManager[None]:
    """Meanwhile the queue of this machine counts with the run, unless it has started it itself."""
    return counted(directory, _cores_of(task))


def _cores_of(task: Task) -> list[int]:
    """The cores of this machine that its workers take: of those on GPUs one each, else all."""
    if not isinstance(task.engine, LocalEngine):
        return []
    here, workers = cores_here(), task.strategy.workers
    if not _is_on_gpus(task, workers, len(gpus_here())):
        return here
    return sorted({share_of(here, rank, workers)[0] for rank in range(workers)})


def _is_on_gpus(task: Task, workers: int, gpus: int) -> bool:
    device = task.device if isinstance(task, Script) else task.train.device
    return device == "cuda" or (device == "auto" and workers <= gpus)
