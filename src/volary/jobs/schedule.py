"""Who starts next, who gives way, and why somebody waits: a function of what there is and of a time, without I/O.

Priority counts first, then the place in the queue. Nobody overtakes a run that could start without them: a later one
starts only if the earlier loses nothing by it. What runs gives way to a higher priority, as a run that is stopped after
its step loses nothing. One that is short may fill a gap (backfilling, Lifka 1995): it ends before the earlier one can
start by all that is known, and where that was wrong it gives way. With several machines a run is on one of them, and
one that waits keeps room on all where it could be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from volary.jobs.entry import Capacity, Claim, Demand, QueueEntry
from volary.jobs.machines.rooms import MachineRoom, refusals, room_of, rooms_of
from volary.jobs.machines.shares import SLICE_S


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
        self._rooms = rooms_of(capacity, self._underway)
        self._alike: dict[object, tuple[Mapping[str, str], list[MachineRoom]]] = {}
        self._found = Decisions()

    def decided(self) -> Decisions:
        for entry in [one for one in self._running if one.held or one.cancelled]:
            self._stop(entry, "cancelled" if entry.cancelled else "held")
        for claim in self._capacity.claims:
            self._keep(claim)
        for entry in self._waiting:
            refused, rooms = self._machines_for(entry)
            if reason := self._not_ready(entry, refused, rooms):
                self._found.reasons[entry.run] = Reason(reason)
            elif (room := next((one for one in rooms if self._may_start(entry, one)), None)) is not None:
                self._start(entry, room)
            else:
                self._let_wait(entry, rooms, refused)
        return self._found

    def _machines_for(self, entry: QueueEntry) -> tuple[Mapping[str, str], list[MachineRoom]]:
        """Why it cannot start on a machine, by name, and those on which it can; of equal runs that is the same."""
        alike = entry.demand, entry.folder if entry.movable else None
        if alike not in self._alike:
            refused = refusals(self._capacity, entry)
            self._alike[alike] = refused, [room for name, room in self._rooms.items() if refused.get(name) == ""]
        return self._alike[alike]

    def _not_ready(self, entry: QueueEntry, refused: Mapping[str, str], rooms: Sequence[MachineRoom]) -> str:
        if entry.held:
            return "held"
        if before := [run for run in entry.after if run in self._open]:
            return f"comes after {', '.join(map(_name, before))}"
        return "" if rooms else "; ".join(refused.values())

    def _may_start(self, entry: QueueEntry, room: MachineRoom) -> bool:
        ends_in_gap = entry.time_s is not None and self._now_s + entry.time_s <= room.gap_until
        return room.fits(entry.demand) and (room.gap_until == math.inf or ends_in_gap)

    def _start(self, entry: QueueEntry, room: MachineRoom) -> None:
        fills, demand = room.gap_until < math.inf, entry.demand
        if entry.between is not None and not fills:
            demand = room.with_more_cores(demand, entry.between[1])
        given = room.deal(demand, self._underway)
        begun = msgspec.structs.replace(
            entry, state="running", given=given, demand=demand, started_s=self._now_s, fills=fills
        )
        self._underway.append(begun)
        self._found.start.append(begun)

    def _let_wait(self, entry: QueueEntry, rooms: Sequence[MachineRoom], refused: Mapping[str, str]) -> None:
        """Keep room for it, of what ends soon or of those that give way; else nobody after it may delay it."""
        unblocked = [room for room in rooms if room.gap_until == math.inf]
        if not unblocked:
            blocked_by = ", ".join(dict.fromkeys(room.blocked_by for room in rooms))
            self._found.reasons[entry.run] = Reason(f"waits behind {blocked_by}")
            return
        words = self._lacking(entry.demand, rooms, refused)
        if (kept := self._given_up_for(entry, unblocked)) is not None:
            kept.soon -= entry.demand
            self._found.reasons[entry.run] = Reason(f"waits for {words}, which others are giving up", self._now_s)
            return
        starts = [self._earliest(entry.demand, room) for room in unblocked]
        for room, starts_s in zip(unblocked, starts, strict=True):
            room.gap_until, room.blocked_by = starts_s or self._now_s, _name(entry.run)
        known = [starts_s for starts_s in starts if starts_s is not None]
        self._found.reasons[entry.run] = Reason(f"waits for {words}", min(known, default=None))

    def _lacking(self, demand: Demand, rooms: Sequence[MachineRoom], refused: Mapping[str, str]) -> str:
        """The need that there is no room for: of this machine alone where it has no other, else of each."""
        if list(refused) == [""]:
            return rooms[0].lacks(demand)
        found = [f"{room.lacks(demand)} on {room.name or 'this machine'}" for room in rooms]
        return "; ".join([" or ".join(found), *(words for name, words in refused.items() if name and words)])

    def _given_up_for(self, entry: QueueEntry, rooms: Sequence[MachineRoom]) -> MachineRoom | None:
        """The machine where others make room for it: where they do already, or where the least dear are stopped."""
        if (soon := next((room for room in rooms if entry.demand.within(room.soon)), None)) is not None:
            return soon
        able = [(room, victims) for room in rooms if (victims := self._victims(entry, room))]
        if not able:
            return None
        room, victims = min(able, key=lambda pair: (max(one.priority for one in pair[1]), len(pair[1])))
        for victim in victims:
            self._stop(victim, f"gives way to {_name(entry.run)}")
        return room

    def _keep(self, claim: Claim) -> None:
        """Leave room on this machine for another user's run, or make it; else nobody starts here before it does."""
        room, user = self._rooms[""], f"user {claim.user}"
        old = [one for one in self._on(room) if self._now_s - one.started_s >= SLICE_S] if claim.gives_way else []
        for victim in [] if claim.demand.within(room.soon) else self._least_dear(old, claim.demand, room.soon):
            self._stop(victim, f"gives way to {user}")
        if claim.demand.within(room.soon):
            room.soon -= claim.demand
        elif room.gap_until == math.inf:
            room.gap_until, room.blocked_by = self._earliest(claim.demand, room) or self._now_s, user

    def _stop(self, entry: QueueEntry, why: str) -> None:
        self._found.stop[entry.run] = why
        self._running.remove(entry)
        if (room := room_of(self._rooms, entry)) is not None:
            room.soon += entry.demand

    def _on(self, room: MachineRoom) -> list[QueueEntry]:
        return [one for one in self._running if room_of(self._rooms, one) is room]

    def _victims(self, entry: QueueEntry, place: MachineRoom) -> list[QueueEntry]:
        """The entries that give way to it there: of the least priority, then the youngest; none if not enough."""
        lower = [one for one in self._on(place) if one.priority < entry.priority]
        lower += [one for one in self._on(place) if one not in lower and one.fills and one.order > entry.order]
        return self._least_dear(lower, entry.demand, place.soon)

    def _least_dear(self, entries: Sequence[QueueEntry], demand: Demand, room: Demand) -> list[QueueEntry]:
        able = [one for one in entries if one.run not in self._unsaved]
        able.sort(key=lambda one: (one.priority, -one.started_s, -one.place))
        chosen = []
        for one in able:
            if demand.within(room):
                break
            room += one.demand
            chosen.append(one)
        if not demand.within(room):
            return []
        for one in reversed(chosen):  # the dearest first: what is not needed stays
            if demand.within(room - one.demand):
                room -= one.demand
                chosen.remove(one)
        return chosen

    def _earliest(self, demand: Demand, place: MachineRoom) -> float | None:
        """When there will be room for it there, as those that run end; None if that is not known."""
        room = place.soon
        for end, one in sorted(((self._end(one), one) for one in self._on(place)), key=lambda pair: pair[0]):
            room += one.demand
            if demand.within(room):
                return None if end == math.inf else max(end, self._now_s)
        return None

    def _end(self, entry: QueueEntry) -> float:
        own = math.inf if entry.time_s is None else entry.started_s + entry.time_s
        return self._ends.get(entry.run, own)


def _name(run: str) -> str:
    return run.rpartition("/")[2]
