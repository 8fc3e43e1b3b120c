"""A run in the queue: what it asks for, what it was given, how it stands. Kept in its directory and in the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from volary.jobs.session_file import SubmittedFile
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file

GIB = 1 << 30
NO_LIMIT = 1 << 62  # bytes, where a system does not say how much memory it has
MemoryFrom = Literal["asked", "measured", "estimate", "default"]
"""Its user said it, a run of its session took it, its dry run says it, or workers without a network take it."""


class Demand(msgspec.Struct, frozen=True):
    """The cores, memory and GPUs that a run takes of a machine, or that are left of one. gpus: how many of them."""

    cores: int = 1
    memory_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.cores + other.cores, self.memory_bytes + other.memory_bytes, self.gpus + other.gpus)

    def __sub__(self, other: Demand) -> Demand:
        return Demand(self.cores - other.cores, self.memory_bytes - other.memory_bytes, self.gpus - other.gpus)

    def within(self, room: Demand) -> bool:
        """Whether there is room for it."""
        return self.cores <= room.cores and self.memory_bytes <= room.memory_bytes and self.gpus <= room.gpus


class HostCapacity(msgspec.Struct, frozen=True):
    """Another machine, on which runs are started by ssh: the cores, the memory and the GPUs there that the queue has.

    why_not: a sentence if it cannot be used now. folders: those that are known to be there: a run needs its own.
    used_gpus: those that some process computed on when it was asked.
    """

    name: str
    cores: tuple[int, ...] = ()
    memory_bytes: int = 0
    why_not: str = ""
    folders: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    used_gpus: tuple[int, ...] = ()

    def capacity(self, given: Iterable[int]) -> Capacity:
        """The machine as the queue may use it. given: the GPUs there that runs of the queue have."""
        used = set(self.used_gpus).difference(given)
        return Capacity(self.cores, self.memory_bytes, self.gpus, tuple(gpu for gpu in self.gpus if gpu in used))


class Claim(msgspec.Struct, frozen=True):
    """Room of this machine kept for a run of another user, by number. gives_way: by stopping runs, if need be."""

    user: int
    demand: Demand
    gives_way: bool = False


class Capacity(msgspec.Struct, frozen=True):
    """A machine: the numbers of its cores and of its GPUs, and its memory.

    used_gpus, used_cores, used_bytes: what is used now outside of the queue. hosts: further machines. claims: of other
    users with whom it is shared.
    """

    cores: tuple[int, ...]
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    used_gpus: tuple[int, ...] = ()
    used_cores: tuple[int, ...] = ()
    hosts: tuple[HostCapacity, ...] = ()
    used_bytes: int = 0
    claims: tuple[Claim, ...] = ()

    @property
    def whole(self) -> Demand:
        """All that the machine has."""
        return Demand(len(self.cores), self.memory_bytes, len(self.gpus))

    @property
    def usable(self) -> Demand:
        """The capacity that the runs of the queue may use now."""
        return self.whole - Demand(len(self.used_cores), self.used_bytes, len(self.used_gpus))

    def refusal(self, demand: Demand) -> str:
        """Why no such run can ever start here; empty if it can."""
        if demand.cores > len(self.cores):
            return f"needs {demand.cores} core{'s' * (demand.cores > 1)}, and this machine has {len(self.cores)}"
        if demand.gpus > len(self.gpus):
            return f"needs {demand.gpus} GPU{'s' * (demand.gpus > 1)}, and this machine has {len(self.gpus)}"
        if demand.memory_bytes > self.memory_bytes:
            there = self.memory_bytes / GIB
            return f"needs {demand.memory_bytes / GIB:.1f} GiB of memory, and this machine has {there:.1f}"
        return ""


class Given(msgspec.Struct, frozen=True):
    """The cores and GPUs, by number, that a run was given. host: on which machine; empty: this one."""

    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    host: str = ""


class PastUse(msgspec.Struct, frozen=True):
    """The part of a machine that a run had, from a start of it until that ended, in seconds since 1970."""

    run: str
    given: Given
    memory_bytes: int
    began_at: float
    ended_at: float


class QueueEntry(msgspec.Struct, frozen=True):
    """A run in the queue, which is known by the path of its directory.

    place: where it stands among those of its priority. after: runs that are to finish before. time_s: how long it takes
    at most, as its user says. losses: of workers or its driver that are still tried again. put_back: a stop that was
    not asked for by its user, so that it waits again. cancelled: it leaves the queue once it has stopped. fills: it was
    started before one that waited longer, for a gap. boot, started_s, attempt, pid: of its newest start: of which boot
    of the machine, when since that, the run's newest attempt before, and its driver (0: none is known). overrides: of
    its settings, as it is resumed, until it has begun. asked_bytes: the memory that its user said it takes; used_bytes:
    what it was seen to take; its demand is never less. memory_from: how its demand of memory is known. file: that its
    session was read from. movable: whether it may be on another machine that the queue has. between: the fewest and the
    most cores that it takes, of which it waits for the fewest; None: its demand is what it takes.
    """

    run: str
    demand: Demand
    place: float = 0.0
    priority: int = 0
    after: tuple[str, ...] = ()
    time_s: float | None = None
    losses: int = 3
    held: bool = False
    cancelled: bool = False
    state: Literal["waiting", "running", "stopping"] = "waiting"
    put_back: bool = False
    fills: bool = False
    given: Given | None = None
    boot: str = ""
    started_s: float = 0.0
    attempt: int = -1
    pid: int = 0
    folder: str = "."
    python: str = ""
    overrides: tuple[str, ...] = ()
    asked_bytes: int | None = None
    used_bytes: int = 0
    memory_from: MemoryFrom = "default"
    file: SubmittedFile | None = None
    movable: bool = False
    between: tuple[int, int] | None = None

    def waiting_again(self) -> QueueEntry:
        """The entry of a run that was underway and waits again."""
        cores = self.between[0] if self.between else self.demand.cores
        demand = msgspec.structs.replace(self.demand, cores=cores)
        return msgspec.structs.replace(self, state="waiting", given=None, demand=demand)

    @property
    def order(self) -> tuple[int, float]:
        """Sorts runs: by priority, then by place."""
        return -self.priority, self.place


def write_entry(entry: QueueEntry) -> None:
    """Keep it in the run's directory. Raises OSError."""
    replace_file(Disk(), RunDirectory(entry.run).queue, msgspec.json.encode(entry), mode=0o600)


def entry_of(directory: RunDirectory) -> QueueEntry | None:
    """The entry in the queue that the run's directory records; None if it was never there, or cannot be read."""
    try:
        with open_regular(directory.queue) as file:
            return msgspec.json.decode(file.read(), type=QueueEntry)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def forget_entry(directory: RunDirectory) -> None:
    """The run has left the queue. Raises OSError."""
    Disk().remove(directory.queue)
