"""Puts runs into a queue: the engine's where it has one, else this machine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from msgspec.structs import replace

from volary.driver.queued import queue_of, submit
from volary.driver.tasks.checks import check, check_place
from volary.driver.tasks.task import Task, create
from volary.engine.hosts import machine_and_slots
from volary.engine.local import LocalEngine
from volary.errors import BadInput, VolaryError
from volary.jobs.asked import QueuedDemand, QueueRequest
from volary.jobs.entry import Demand, MemoryFrom, entry_of
from volary.jobs.machinery import capacity_here
from volary.jobs.machines.hosts import known_hosts
from volary.jobs.machines.rooms import never_on
from volary.jobs.machines.unqueued import counted
from volary.jobs.memory import KnownMemory, session_key
from volary.jobs.queue import LocalQueue
from volary.jobs.settings import queue_settings, queues_all_runs
from volary.jobs.table import queue_folder
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk
from volary.run.machine.cores import cores_here, share_of
from volary.run.machine.gpus import gpus_here
from volary.session.script import Script


def is_queued(task: Task) -> bool:
    """Whether a run of it that begins here waits in a queue: its engine's, or this machine's as its user wants that."""
    return queue_of(task.engine) is not None or queues_all_runs()


def submit_task(
    task: Task,
    asked: QueueRequest,
    prepare: Callable[[RunDirectory], object] = lambda _: None,
    *,
    file: Path | None = None,
) -> RunDirectory:
    """Make the directory of a run of `task` and queue it. Raises BadInput, with nothing made, for what cannot be run.

    prepare: adds to the new directory what the run begins with. file: that the task was read from.
    """
    check(task)
    check_place(task)
    directory = create(task)
    try:
        prepare(directory)
        put_into_queue(directory, task, asked, file=file)
    except VolaryError:
        with suppress(OSError):
            discard(Disk(), directory.path)
        raise
    return directory


def put_into_queue(
    directory: RunDirectory,
    task: Task,
    asked: QueueRequest | None = None,
    overrides: Sequence[str] = (),
    file: Path | None = None,
) -> None:
    """Queue a run, whose settings are changed as it is resumed. file: that the task was read from.

    Raises BadInput if that cannot be.
    """
    asked = asked or QueueRequest()
    admission = _admission(task, asked)
    if (queue := queue_of(task.engine)) is None:
        LocalQueue().submit(directory, asked, admission, overrides, file)
    else:
        submit(directory, queue, task.strategy, overrides)


def _admission(task: Task, asked: QueueRequest) -> QueuedDemand:
    """The run's demand, and how it is counted. Raises BadInput if no machine has that, or if the engine's own queue
    takes none.
    """
    if queue_of(task.engine) is not None:
        if asked != QueueRequest():
            raise BadInput(
                "the engine has a queue of its own, which takes no options of `volary submit`; accepted: settings of "
                "engine"
            )
        return QueuedDemand(Demand())
    here = capacity_here()
    workers = task.strategy.workers if isinstance(task.engine, LocalEngine) else 1  # else they are elsewhere
    on_gpus = _is_on_gpus(task, workers, len(here.gpus))
    demand = asked.demand(workers, len(here.cores), int(on_gpus))
    memory_from: MemoryFrom = "default" if asked.memory is None else "asked"
    known = KnownMemory.now().of(session_key(task.to_yaml()), here.memory_bytes)
    if asked.memory is None and known is not None:
        memory_bytes, memory_from = known
        demand = replace(demand, memory_bytes=memory_bytes)
    between = _cores_between(task, asked, on_gpus=on_gpus)
    if between is not None:
        demand = replace(demand, cores=between[0])
    movable = isinstance(task.engine, LocalEngine) and between is None
    refusals = [here.refusal(demand), *_refusals_elsewhere(demand)] if movable else [here.refusal(demand)]
    if all(refusals):
        machines = "this machine has" if len(refusals) == 1 else "one of the machines has"
        raise BadInput(f"the run {'; '.join(refusals)}; accepted: what {machines}")
    return QueuedDemand(demand, memory_from, movable, between)


def _cores_between(task: Task, asked: QueueRequest, *, on_gpus: bool) -> tuple[int, int] | None:
    """The fewest and the most cores that a run takes whose workers come and go; None if it takes so many."""
    workers, here = task.strategy.between, isinstance(task.engine, LocalEngine) and not isinstance(task, Script)
    if workers is None or asked.cores is not None or on_gpus or not here:
        return None
    return workers.fewest, workers.most


def _refusals_elsewhere(demand: Demand) -> list[str]:
    """Why the hosts of the queue never take such a run; one that was not asked yet, or is not reached, may do."""
    known = {host.name: host for host in known_hosts(queue_folder())}
    hosts = [known.get(machine_and_slots(host)[0]) for host in queue_settings().hosts]
    return ["" if host is None or host.why_not else never_on(host, demand) for host in hosts]


def remarks_of_queue(directory: RunDirectory) -> list[str]:
    """Remarks on a run that begins as a job of this machine's queue: whether its session file is another one by now."""
    entry = entry_of(directory)
    if entry is None or entry.file is None or entry.attempt >= 0:
        return []
    return [entry.file.remark] if entry.file.remark else []


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
