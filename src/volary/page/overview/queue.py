"""The queue of this machine as the page shows it: what runs where, who waits for what. Looking changes nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from volary.jobs.entry import NO_LIMIT
from volary.jobs.queue import LocalQueue, QueueRow
from volary.page.overview.folder import Folder

GUESS_S = 10.0  # to which a guess is rounded: the page is drawn anew when it changes


class QueuedRun(msgspec.Struct, frozen=True):
    """A run of the queue. id: its name in the page's folder; None if it is in another one: the page leaves it alone.

    cores, gpus: how many it takes; given_cores, given_gpus: their numbers, once it has them on this machine.
    starts_in_s: a guess.
    """

    id: str | None
    name: str
    state: str
    priority: int
    held: bool
    cores: int
    gpus: int
    memory_bytes: int
    given_cores: tuple[int, ...]
    given_gpus: tuple[int, ...]
    reason: str
    starts_in_s: float | None


class QueueHere(msgspec.Struct, frozen=True):
    """The queue, and the machine: its cores and GPUs by number, those that are used outside of the queue, its memory.

    memory_bytes: None if the system does not say. starts: whether the page may change the queue. carried_out: as
    `QueueView` has it.
    """

    runs: list[QueuedRun] = []
    cores: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    used_gpus: tuple[int, ...] = ()
    used_cores: tuple[int, ...] = ()
    memory_bytes: int | None = None
    carried_out: bool = True
    starts: bool = False


def queue_here(folder: Folder, *, starts: bool) -> QueueHere:
    """The queue, with the runs of `folder` by their names there. Raises VolaryError if it cannot be read."""
    view = LocalQueue().view()
    if view is None:
        return QueueHere(starts=starts)
    machine = view.capacity
    return QueueHere(
        runs=[_queued(row, folder) for row in view.rows],
        cores=machine.cores,
        gpus=machine.gpus,
        used_gpus=machine.used_gpus,
        used_cores=machine.used_cores,
        memory_bytes=None if machine.memory_bytes >= NO_LIMIT else machine.memory_bytes,
        carried_out=view.carried_out,
        starts=starts,
    )


def _queued(row: QueueRow, folder: Folder) -> QueuedRun:
    entry, path = row.entry, Path(row.entry.run)
    name, given, starts_s = folder.name_of(path), entry.given, row.starts_in_s
    return QueuedRun(
        id=name,
        name=name or path.name,
        state=entry.state,
        priority=entry.priority,
        held=entry.held,
        cores=entry.demand.cores,
        gpus=entry.demand.gpus,
        memory_bytes=entry.demand.memory_bytes,
        given_cores=given.cores if given and not given.host else (),
        given_gpus=given.gpus if given and not given.host else (),
        reason=row.reason,
        starts_in_s=None if starts_s is None else GUESS_S * round(starts_s / GUESS_S),
    )
