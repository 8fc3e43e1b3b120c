"""The queue of this machine as the page shows it: what runs where, who waits for what. Looking changes nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from volary.jobs.entry import NO_LIMIT, Capacity, HostCapacity, PastUse
from volary.jobs.queue import LocalQueue, QueueRow
from volary.page.overview.folder import Folder
from volary.run.machine import clock

GUESS_S = 10.0  # to which a guess is rounded: the page is drawn anew when it changes


class QueuedRun(msgspec.Struct, frozen=True):
    """A run of the queue. id: its name in the page's folder; None if it is in another one: the page leaves it alone.

    cores, gpus: how many it takes; given_cores, given_gpus: their numbers on `host`, once it has them there. began_at:
    since when, in seconds since 1970. starts_in_s: a guess.
    """

    id: str | None
    name: str
    state: str
    priority: int
    held: bool
    cores: int
    gpus: int
    memory_bytes: int
    host: str
    given_cores: tuple[int, ...]
    given_gpus: tuple[int, ...]
    began_at: float | None
    reason: str
    starts_in_s: float | None


class PastRun(msgspec.Struct, frozen=True):
    """The part of a machine that a run had before, and from when to when, in seconds since 1970."""

    id: str | None
    name: str
    host: str
    given_cores: tuple[int, ...]
    given_gpus: tuple[int, ...]
    memory_bytes: int
    began_at: float
    ended_at: float


class MachineHere(msgspec.Struct, frozen=True):
    """A machine of the queue: its cores and GPUs by number, those that are used outside of the queue, its memory.

    name: empty: this machine. memory_bytes: None if the system does not say.
    """

    name: str
    cores: tuple[int, ...]
    gpus: tuple[int, ...]
    used_cores: tuple[int, ...]
    used_gpus: tuple[int, ...]
    memory_bytes: int | None


class QueueHere(msgspec.Struct, frozen=True):
    """The queue, and its machines, this one first. starts: whether the page may change the queue.

    carried_out, remarks: as `QueueView` has them.
    """

    runs: list[QueuedRun] = []
    machines: list[MachineHere] = []
    past: list[PastRun] = []
    remarks: list[str] = []
    carried_out: bool = True
    starts: bool = False


def queue_here(folder: Folder, *, starts: bool) -> QueueHere:
    """The queue, with the runs of `folder` by their names there. Raises VolaryError if it cannot be read."""
    view = LocalQueue().view()
    if view is None:
        return QueueHere(starts=starts)
    hosts = [host for host in view.capacity.hosts if not host.why_not]
    return QueueHere(
        runs=[_queued(row, folder) for row in view.rows],
        machines=[_machine("", view.capacity), *(_host(host, view.rows) for host in hosts)],
        past=[_past(one, folder) for one in view.past],
        remarks=view.remarks,
        carried_out=view.carried_out,
        starts=starts,
    )


def _machine(name: str, machine: Capacity) -> MachineHere:
    known = None if machine.memory_bytes >= NO_LIMIT else machine.memory_bytes
    return MachineHere(name, machine.cores, machine.gpus, machine.used_cores, machine.used_gpus, known)


def _host(host: HostCapacity, rows: list[QueueRow]) -> MachineHere:
    given = [row.entry.given for row in rows if row.entry.given and row.entry.given.host == host.name]
    return _machine(host.name, host.capacity(gpu for one in given for gpu in one.gpus))


def _past(used: PastUse, folder: Folder) -> PastRun:
    path, given = Path(used.run), used.given
    name = folder.name_of(path)
    return PastRun(
        id=name,
        name=name or path.name,
        host=given.host,
        given_cores=given.cores,
        given_gpus=given.gpus,
        memory_bytes=used.memory_bytes,
        began_at=used.began_at,
        ended_at=used.ended_at,
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
        host=given.host if given else "",
        given_cores=given.cores if given else (),
        given_gpus=given.gpus if given else (),
        began_at=clock.at(entry.started_s) if given else None,
        reason=row.reason,
        starts_in_s=None if starts_s is None else GUESS_S * round(starts_s / GUESS_S),
    )
