"""Checks of a run before its directory is made, and without torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from volary.comm.topology.topology import Topology
from volary.data.choosing.division import sizes
from volary.data.datasets.user_source import refuse_one_part
from volary.data.idle import refuse_idle_workers
from volary.driver.queued import queue_of
from volary.driver.tasks.task import Task
from volary.engine.local import LocalEngine
from volary.errors import BadInput, SettingError
from volary.run.checkpoint_files.store import writable
from volary.run.directory import exists_already
from volary.run.disk import refuse_unwritable
from volary.run.machine.addresses import address_of
from volary.run.machine.cores import cores_here
from volary.session.spec import Session
from volary.session.values.reference import UserObject
from volary.session.values.url import Url

AnyTask = TypeVar("AnyTask", bound=Task)


def check(task: Task) -> list[str]:
    """Check a task before a run directory is made, and without torch. Returns warnings. Raises BadInput."""
    check_input(task)
    workers = task.strategy.workers
    if (reason := task.engine.check(workers)) is not None:
        raise BadInput(f"engine: {reason}")
    try:  # the workers of a machine are one node; of others it is known once they meet
        task.strategy.exchange.check(Topology.of(range(workers)) if isinstance(task.engine, LocalEngine) else None)
    except SettingError as error:
        raise BadInput(f"strategy.exchange: {error}") from None
    try:
        task.strategy.partition.check()
    except SettingError as error:
        raise BadInput(f"strategy.partition: {error}") from None
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
    """Check a task's input, whoever starts its workers. Raises BadInput."""
    task.check()
    if isinstance(task.checkpoint.path, Url):
        writable(str(task.checkpoint.path))
    if isinstance(task, Session) and isinstance(task.data.source, UserObject):
        if task.evaluate.every.unit != "never" and not task.data.divided:
            refuse_one_part(task.data.source)
    elif isinstance(task, Session) and hasattr(task.data.source, "count"):
        count = task.data.source.count("train")
        if count is not None and task.data.divided:
            count = sizes(task.data, count).train
        refuse_idle_workers(task.strategy.shares, task.data.batch_size, count)


def with_room(task: AnyTask) -> AnyTask:
    """The task, which begins with as many workers as its range allows and, on this machine alone, cores are usable.

    Raises BadInput if there are fewer cores than the fewest workers.
    """
    strategy = task.strategy
    if strategy.between is None or not isinstance(task.engine, LocalEngine):
        return task
    cores = len(cores_here())
    if cores < strategy.between.fewest:
        raise BadInput(
            f"strategy.workers is {strategy.between}, and {cores} core{'s are' if cores > 1 else ' is'} usable here; "
            f"accepted: a range that begins with {cores} or fewer, or a number"
        )
    return replace(
        task, strategy=replace(strategy, workers=min(strategy.between.most, max(cores, strategy.between.fewest)))
    )
