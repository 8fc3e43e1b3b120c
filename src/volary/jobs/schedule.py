"""Who starts next, who gives way, and why somebody waits: a function of what there is and of a time, without I/O.

Priority counts first, then the place in the queue. Nobody overtakes a run that could start without them: a later one
starts only if the earlier loses nothing by it. What runs gives way to a higher priority, as a run that is stopped after
its step loses nothing. One that is short may fill a gap (backfilling, Lifka 1995): it ends before the earlier one can
start by all that is known, and where that was wrong it gives way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from volary.jobs.entry import GIB, Capacity, Demand, Given, QueueEntry


@dataclass(frozen=True)
class Reason:
    """Why a run waits. starts_s: when it can start by what is known; None: not known."""

    words: str
    starts_s: float | None = None


@dataclass
class Decisions:
    """The next actions of the queue. start: entries as they are once they have cores. stop: each with the reason."""

    start: list[QueueEntry] = field(default_factory=list)
    stop: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)


def decide(
    entries: Sequence[QueueEntry],
    capacity: Capacity,
    now_s: float,
    *,
    ends: Mapping[str, float] | None = None,
    unfinished: Collection[str] = (),
    unsaved: Collection[str] = (),
) -> Decisions:
    """Decide for all runs of the queue. Times are in seconds on one clock.

    ends: when running ones are expected to end, where that is known better than by their own `time_s`. unfinished: runs
    outside of the queue that others come after and that have not finished. unsaved: runs that do not give way, as all
    that they did would be lost.
    """
    return _Scheduling(entries, capacity, now_s, ends or {}, unfinished, unsaved).decided()


class _Scheduling:
    def __init__(
        self,
        entries: Sequence[QueueEntry],
        capacity: Capacity,
        now_s: float,
        ends: Mapping[str, float],
        unfinished: Collection[str],
        unsaved: Collection[str],
    ) -> None:
        self._capacity, self._now_s, self._ends, self._unsaved = capacity, now_s, ends, unsaved
        self._waiting = sorted((one for one in entries if one.state == "waiting"), key=lambda one: one.order)
        self._running = [one for one in entries if one.state == "running"]
        self._underway = [one for one in entries if one.state != "waiting"]
        self._open = {*unfinished, *(one.run for one in entries)}
        stopping = _sum(one.demand for one in self._underway if one.state == "stopping")
        self._free = capacity.usable - _sum(one.demand for one in self._underway)
        self._soon = self._free + stopping  # once all that are stopping have ended, and earlier ones have started
        self._gap_until = math.inf  # before that no run starts that waits for others to end
        self._first_blocked = ""
        self._found = Decisions()

    def decided(self) -> Decisions:
        for entry in [one for one in self._running if one.held or one.cancelled]:
            self._stop(entry, "cancelled" if entry.cancelled else "held")
        for entry in self._waiting:
            if reason := self._not_ready(entry):
                self._found.reasons[entry.run] = Reason(reason)
            elif entry.demand.within(self._free) and entry.demand.within(self._soon) and self._ends_in_gap(entry):
                self._start(entry)
            else:
                self._let_wait(entry)
        return self._found

    def _not_ready(self, entry: QueueEntry) -> str:
        if entry.held:
            return "held"
        if before := [run for run in entry.after if run in self._open]:
            return f"comes after {', '.join(map(_name, before))}"
        return self._capacity.refusal(entry.demand)

    def _ends_in_gap(self, entry: QueueEntry) -> bool:
        if self._gap_until == math.inf:
            return True
        return entry.time_s is not None and self._now_s + entry.time_s <= self._gap_until

    def _start(self, entry: QueueEntry) -> None:
        given = Given(
            self._unused(self._capacity.cores, self._capacity.used_cores, "cores", entry.demand.cores),
            self._unused(self._capacity.gpus, self._capacity.used_gpus, "gpus", entry.demand.gpus),
        )
        begun = msgspec.structs.replace(
            entry, state="running", given=given, started_s=self._now_s, fills=self._gap_until < math.inf
        )
        self._underway.append(begun)
        self._found.start.append(begun)
        self._free, self._soon = self._free - entry.demand, self._soon - entry.demand

    def _unused(self, numbers: Sequence[int], used: Sequence[int], kind: str, count: int) -> tuple[int, ...]:
        taken = {number for one in self._underway if one.given for number in getattr(one.given, kind)}
        return tuple(number for number in numbers if number not in taken and number not in used)[:count]

    def _let_wait(self, entry: QueueEntry) -> None:
        """Keep room for it, of what ends soon or of those that give way; else nobody after it may delay it."""
        if self._gap_until < math.inf:
            self._found.reasons[entry.run] = Reason(f"waits behind {self._first_blocked}")
            return
        demand, lacks = entry.demand, _lacking(entry.demand, self._free)
        victims = [] if demand.within(self._soon) else self._victims(entry)
        for victim in victims:
            self._stop(victim, f"gives way to {_name(entry.run)}")
        if demand.within(self._soon):
            self._soon -= demand
            self._found.reasons[entry.run] = Reason(f"waits for {lacks}, which others are giving up", self._now_s)
            return
        starts_s = self._earliest(demand)
        self._gap_until, self._first_blocked = starts_s or self._now_s, _name(entry.run)
        outside = len(self._capacity.used_cores) if demand.cores > self._free.cores else 0
        words = f" ({_many(outside, 'core')} used outside of the queue)" if outside else ""
        self._found.reasons[entry.run] = Reason(f"waits for {lacks}{words}", starts_s)

    def _stop(self, entry: QueueEntry, why: str) -> None:
        self._found.stop[entry.run] = why
        self._running.remove(entry)
        self._soon += entry.demand

    def _victims(self, entry: QueueEntry) -> list[QueueEntry]:
        """The entries that give way to it: of the least priority, then the youngest; none if that is not enough."""
        able = [one for one in self._running if one.run not in self._unsaved]
        able = [one for one in able if one.priority < entry.priority or (one.fills and one.order > entry.order)]
        able.sort(key=lambda one: (one.priority, -one.started_s, -one.place))
        room, chosen = self._soon, []
        for one in able:
            if entry.demand.within(room):
                break
            room += one.demand
            chosen.append(one)
        if not entry.demand.within(room):
            return []
        for one in reversed(chosen):  # the dearest first: what is not needed stays
            if entry.demand.within(room - one.demand):
                room -= one.demand
                chosen.remove(one)
        return chosen

    def _earliest(self, demand: Demand) -> float | None:
        """When there will be room for it, as those that run end; None if that is not known."""
        room = self._soon
        for end, one in sorted(((self._end(one), one) for one in self._running), key=lambda pair: pair[0]):
            room += one.demand
            if demand.within(room):
                return None if end == math.inf else max(end, self._now_s)
        return None

    def _end(self, entry: QueueEntry) -> float:
        own = math.inf if entry.time_s is None else entry.started_s + entry.time_s
        return self._ends.get(entry.run, own)


def _sum(demands: Iterable[Demand]) -> Demand:
    return sum(demands, Demand(0))


def _lacking(demand: Demand, room: Demand) -> str:
    """Say for which part of the demand there is no room: `2 of 4 cores`; where there is room for all of it, all."""
    found = []
    for count, free, noun in ((demand.cores, room.cores, "core"), (demand.gpus, room.gpus, "GPU")):
        if count > free:
            found.append(f"{count - free} of {_many(count, noun)}" if free > 0 else _many(count, noun))
    if demand.memory_bytes > room.memory_bytes:
        found.append(f"{demand.memory_bytes / GIB:.1f} GiB of memory")
    return " and ".join(found) or "its turn"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count > 1)}"


def _name(run: str) -> str:
    return run.rpartition("/")[2]
