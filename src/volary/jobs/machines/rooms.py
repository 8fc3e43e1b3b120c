"""The machines of a schedule, each with what is free on it: this one, and the hosts that the queue has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from volary.jobs.entry import GIB, Capacity, Demand, Given, HostCapacity, QueueEntry


@dataclass
class MachineRoom:
    """One machine as its runs are dealt out.

    name: empty: this machine. free: what nobody has. soon: the same once all that are stopping have ended, and earlier
    ones have started. gap_until: before that no run starts here that waits for others to end. blocked_by: for whom.
    """

    name: str
    capacity: Capacity
    free: Demand
    soon: Demand
    gap_until: float = math.inf
    blocked_by: str = ""

    @classmethod
    def of(cls, name: str, capacity: Capacity, underway: Iterable[QueueEntry]) -> MachineRoom:
        """The machine with what is underway on it."""
        here = [one for one in underway if _place(one) == name]
        free = capacity.usable - _summed(one.demand for one in here)
        return cls(name, capacity, free, free + _summed(one.demand for one in here if one.state == "stopping"))

    def fits(self, demand: Demand) -> bool:
        """Whether there is room for it now, without what earlier ones wait for."""
        return demand.within(self.free) and demand.within(self.soon)

    def with_more_cores(self, demand: Demand, most: int) -> Demand:
        """The demand with as many cores, up to `most`, as nobody has or waits for who comes earlier."""
        cores = min(most, self.free.cores, self.soon.cores)
        return Demand(max(demand.cores, cores), demand.memory_bytes, demand.gpus)

    def deal(self, demand: Demand, underway: Iterable[QueueEntry]) -> Given:
        """Take it out of what is free: cores and GPUs that none of those underway has."""
        here = [one.given for one in underway if one.given and _place(one) == self.name]
        capacity = self.capacity
        cores = _unused(capacity.cores, {*capacity.used_cores, *(core for one in here for core in one.cores)})
        gpus = _unused(capacity.gpus, {*capacity.used_gpus, *(gpu for one in here for gpu in one.gpus)})
        self.free, self.soon = self.free - demand, self.soon - demand
        return Given(cores[: demand.cores], gpus[: demand.gpus], self.name)

    def lacks(self, demand: Demand) -> str:
        """The part of the demand for which there is no room: `2 of 4 cores`; where there is room for all of it, all."""
        found = []
        for count, free, noun in ((demand.cores, self.free.cores, "core"), (demand.gpus, self.free.gpus, "GPU")):
            if count > free:
                found.append(f"{count - free} of {_many(count, noun)}" if free > 0 else _many(count, noun))
        if demand.memory_bytes > self.free.memory_bytes:
            found.append(f"{demand.memory_bytes / GIB:.1f} GiB of memory")
        outside = len(self.capacity.used_cores) if demand.cores > self.free.cores else 0
        words = f" ({_many(outside, 'core')} used outside of the queue)" if outside else ""
        return (" and ".join(found) or "its turn") + words


def rooms_of(capacity: Capacity, underway: Sequence[QueueEntry]) -> dict[str, MachineRoom]:
    """All machines that can be used, this one first, by name."""
    given = {host.name: list[int]() for host in capacity.hosts if not host.why_not}
    for one in underway:
        if one.given and one.given.host in given:
            given[one.given.host] += one.given.gpus
    machines = {"": capacity}
    machines |= {host.name: host.capacity(given[host.name]) for host in capacity.hosts if host.name in given}
    return {name: MachineRoom.of(name, machine, underway) for name, machine in machines.items()}


def room_of(rooms: dict[str, MachineRoom], entry: QueueEntry) -> MachineRoom | None:
    """The machine on which it runs; None if that cannot be used any more."""
    return rooms.get(_place(entry))


def refusals(capacity: Capacity, entry: QueueEntry) -> dict[str, str]:
    """Why it cannot start on a machine, or not as that is now, by the machine's name; empty words: it can."""
    found = {"": capacity.refusal(entry.demand)}
    if entry.movable:
        found |= {host.name: _host_refusal(host, entry) for host in capacity.hosts}
    return found


def never_on(host: HostCapacity, demand: Demand) -> str:
    """Why a host never has so much; empty if it may."""
    if demand.cores > len(host.cores):
        return f"{host.name} has {len(host.cores)}"
    if demand.gpus > len(host.gpus):
        return f"{host.name} has {_many(len(host.gpus), 'GPU') if host.gpus else 'no GPU'}"
    if demand.memory_bytes > host.memory_bytes:
        return f"{host.name} has {host.memory_bytes / GIB:.1f} GiB of memory"
    return ""


def _host_refusal(host: HostCapacity, entry: QueueEntry) -> str:
    if host.why_not:
        return host.why_not
    absent = "" if entry.folder in host.folders else f"{host.name} has no folder {entry.folder}"
    return never_on(host, entry.demand) or absent


def _summed(demands: Iterable[Demand]) -> Demand:
    return sum(demands, Demand(0))


def _place(entry: QueueEntry) -> str:
    return entry.given.host if entry.given else ""


def _unused(numbers: Sequence[int], used: set[int]) -> tuple[int, ...]:
    return tuple(number for number in numbers if number not in used)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count > 1)}"
