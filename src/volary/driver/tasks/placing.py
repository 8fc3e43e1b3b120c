"""Where the workers of a run of this machine's queue are: here, or on another machine, which the queue has chosen."""

from __future__ import annotations

import os

from volary.driver.tasks.task import Task
from volary.engine._base import Engine
from volary.engine.local import LocalEngine
from volary.errors import WorkerLost
from volary.jobs.entry import entry_of
from volary.jobs.settings import queue_settings
from volary.run.directory import RunDirectory
from volary.run.launch.queued import QUEUED_RUN
from volary.run.machine.addresses import address_of


def engine_of(directory: RunDirectory, task: Task) -> Engine:
    """The task's engine, or what starts its workers on the machine that the queue has given to the run."""
    engine: Engine = task.engine
    entry = entry_of(directory) if os.environ.get(QUEUED_RUN) == str(directory.path) else None
    if entry is None or entry.given is None or not entry.given.host or not isinstance(engine, LocalEngine):
        return engine
    slots = task.strategy.workers + task.strategy.spares
    return queue_settings().engine(
        f"{entry.given.host}:{slots}",
        folder=entry.folder,
        cores=entry.given.cores,
        gpus=entry.given.gpus,
        pin=engine.pin,
        max_restarts=engine.max_restarts,
    )


def require_reached(engine: Engine, task: Task) -> None:
    """Raise WorkerLost if that machine cannot take the workers now: the queue tries the run again."""
    if engine is not task.engine and (reason := engine.check(task.strategy.workers)) is not None:
        raise WorkerLost(reason)


def host_of(task: Task, engine: Engine) -> str:
    """The address of this machine that the driver listens on. Raises BadInput if it has none such."""
    return address_of(task.strategy.interface) if task.strategy.interface else engine.host()
