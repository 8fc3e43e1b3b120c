"""Carries the schedule out: looks at what has ended, starts, stops. It may be killed anywhere, and the next goes on.

Each step is written down before it is taken, and what was begun and not finished is seen by the next look: a run whose
row says that it runs and which nobody drives has ended, or never began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import msgspec

from volary.errors import VolaryError
from volary.jobs.entry import Capacity, MemoryFrom, QueueEntry
from volary.jobs.schedule import decide

How = Literal["finished", "stopped", "terminated", "failed", "lost", "not begun"]  # terminated: by SIGTERM, saved


@dataclass(frozen=True)
class Moment:
    """A time in seconds since the machine was started, and which start that was."""

    boot: str
    now_s: float


class EntryTable(Protocol):
    """The runs of the queue."""

    def entries(self) -> list[QueueEntry]:
        """All that are in it."""
        ...

    def change(self, run: str, how: Callable[[QueueEntry], QueueEntry | None]) -> QueueEntry | None:
        """Let `how` say what a run's entry becomes, as nobody else changes it; None: it stays. Returns what it became,
        None if it stayed or is not there any more.
        """
        ...

    def remove(self, run: str) -> None:
        """The run leaves the queue."""
        ...


class Machinery(Protocol):
    """The machine as a runner sees it, and acts on it, outside of the table."""

    def moment(self) -> Moment:
        """The time as it is now."""
        ...

    def capacity(self, entries: Sequence[QueueEntry]) -> Capacity:
        """The capacity of the machine. entries: of the queue, which are not strangers."""
        ...

    def expect(self, entry: QueueEntry | None) -> None:
        """This run starts next, as it seems, and what its driver needs may get ready; None: there is none."""
        ...

    def learnt(self, entries: Sequence[QueueEntry]) -> Mapping[str, tuple[int, MemoryFrom]]:
        """The bytes that waiting runs are known to take by now, and how that is known, by run, where that is news."""
        ...

    def ends(self, entries: Iterable[QueueEntry]) -> Mapping[str, float]:
        """When those of the entries that run are expected to end, as far as that is known."""
        ...

    def unsaved(self, entries: Iterable[QueueEntry]) -> set[str]:
        """The running entries that would begin anew if they were stopped."""
        ...

    def is_alive(self, entry: QueueEntry) -> bool:
        """Whether a process drives the run, or writes to it still."""
        ...

    def exists(self, entry: QueueEntry) -> bool:
        """Whether the run's directory is there."""
        ...

    def attempt(self, entry: QueueEntry) -> int:
        """The newest attempt at the run; -1 before the first."""
        ...

    def start(self, entry: QueueEntry) -> int:
        """Start a driver of the run, unless one is alive; its process. Raises VolaryError if that cannot be."""
        ...

    def used_bytes(self, entry: QueueEntry) -> int:
        """The memory that the run takes now; 0 if that is not known."""
        ...

    def keep_used(self, entry: QueueEntry, how: How) -> None:
        """Keep what it took, which has ended so: for later runs, and for who looks at the past of the queue. Write into
        its directory if it asked for less.
        """
        ...

    def ask_to_stop(self, entry: QueueEntry) -> None:
        """Ask the driver to end after its step; asked again and again until it has."""
        ...

    def how_ended(self, entry: QueueEntry) -> How:
        """How the start of the run that its entry is of ended, which nobody drives any more."""
        ...

    def unfinished(self, run: str) -> bool | None:
        """Whether a run outside of the queue may still finish; None if it never will."""
        ...

    def give_up(self, entry: QueueEntry, sentence: str) -> None:
        """Write into the run's directory that it failed, unless that says itself how it ended."""
        ...


class QueueRunner:
    """Looks at the queue again and again. note: called with a line for each thing that happens."""

    def __init__(self, table: EntryTable, machinery: Machinery, note: Callable[[str], None] = lambda _: None) -> None:
        self._table, self._machinery, self._note = table, machinery, note

    def look(self) -> None:
        """Do what is to be done now."""
        moment = self._machinery.moment()
        for entry in self._table.entries():
            self._look_at(entry, moment)
        for run, (size, how) in self._machinery.learnt(self._table.entries()).items():
            self._table.change(run, partial(_expecting, size=size, how=how))
        unfinished = self._unfinished(self._table.entries())
        entries = self._table.entries()
        decided = decide(
            entries,
            self._machinery.capacity(entries),
            moment.now_s,
            ends=self._machinery.ends(entries),
            unfinished=unfinished,
            unsaved=self._machinery.unsaved(entries),
        )
        for run, why in decided.stop.items():
            if self._table.change(run, _stopping):
                self._note(f"{run} {why}")
        for entry in decided.start:
            self._start(entry, moment)
        entries = self._table.entries()
        for entry in entries:
            if entry.state == "stopping":
                self._machinery.ask_to_stop(entry)
        open_ = {*unfinished, *(one.run for one in entries)}
        able = [one for one in entries if one.state == "waiting" and not one.held and not open_.intersection(one.after)]
        underway = any(one.state != "waiting" for one in entries)
        self._machinery.expect(min(able, key=lambda one: one.order, default=None) if underway else None)

    def _look_at(self, entry: QueueEntry, moment: Moment) -> None:
        if entry.state == "waiting":
            if entry.cancelled or not self._machinery.exists(entry):
                self._table.remove(entry.run)
        elif self._machinery.is_alive(entry):
            if (used := self._machinery.used_bytes(entry)) > entry.used_bytes:
                self._table.change(entry.run, lambda now: _using(now, used))
        else:
            how = self._machinery.how_ended(entry)
            self._machinery.keep_used(entry, how)
            if (again := after_end(entry, how, moment.boot)) is None:
                self._leave(entry, how)
            elif self._table.change(entry.run, lambda now: after_end(now, how, moment.boot)):
                self._note(f"{entry.run} {how}; it waits again, {again.losses} losses left")

    def _leave(self, entry: QueueEntry, how: How) -> None:
        if how in ("lost", "not begun") and not entry.cancelled:
            self._machinery.give_up(entry, "its driver ended without a word, as often as that is tried again")
        self._note(f"{entry.run} {how}")
        self._table.remove(entry.run)

    def _unfinished(self, entries: Sequence[QueueEntry]) -> set[str]:
        """Runs outside of the queue that others wait for; those that wait for what never finishes leave the queue."""
        waiting, here = [entry for entry in entries if entry.state == "waiting"], {entry.run for entry in entries}
        outside = {run for entry in waiting for run in entry.after} - here  # many may wait for one
        states = {run: self._machinery.unfinished(run) for run in outside}
        for entry in waiting:
            if never := [run for run in entry.after if states.get(run, True) is None]:
                self._machinery.give_up(entry, f"{never[0]}, which it comes after, did not finish")
                self._table.remove(entry.run)
        return {run for run, open_ in states.items() if open_}

    def _start(self, decided: QueueEntry, moment: Moment) -> None:
        def begun(now: QueueEntry) -> QueueEntry | None:
            if (now.state, now.held, now.cancelled, now.order) != ("waiting", False, False, decided.order):
                return None  # its user has changed it meanwhile: decided anew at the next look
            attempt = self._machinery.attempt(decided)
            return msgspec.structs.replace(decided, boot=moment.boot, attempt=attempt, pid=0)

        if (entry := self._table.change(decided.run, begun)) is None:
            return
        try:
            pid = self._machinery.start(entry)
        except VolaryError as error:
            self._machinery.give_up(entry, str(error))
            self._table.remove(entry.run)
            return
        self._table.change(entry.run, lambda now: msgspec.structs.replace(now, pid=pid))
        assert entry.given is not None
        where = f" of {entry.given.host}" * bool(entry.given.host)
        self._note(f"{entry.run} started on cores {', '.join(map(str, entry.given.cores))}{where}")


def _expecting(entry: QueueEntry, size: int, how: MemoryFrom) -> QueueEntry | None:
    if entry.state != "waiting":
        return None
    demand = msgspec.structs.replace(entry.demand, memory_bytes=max(size, entry.used_bytes))
    return msgspec.structs.replace(entry, demand=demand, memory_from=how)


def _using(entry: QueueEntry, used_bytes: int) -> QueueEntry:
    memory_bytes = max(entry.demand.memory_bytes, used_bytes)
    demand = msgspec.structs.replace(entry.demand, memory_bytes=memory_bytes)
    how: MemoryFrom = "measured" if used_bytes >= entry.demand.memory_bytes else entry.memory_from
    return msgspec.structs.replace(entry, used_bytes=used_bytes, demand=demand, memory_from=how)


def _stopping(entry: QueueEntry) -> QueueEntry | None:
    if entry.state != "running":
        return None
    return msgspec.structs.replace(entry, state="stopping", put_back=not entry.cancelled)


def after_end(entry: QueueEntry, how: How, boot: str) -> QueueEntry | None:
    """A run has ended: its entry if it waits again, None if it leaves the queue. boot: of the machine now."""
    same_boot = entry.boot == boot  # else it was the machine that stopped it
    if entry.cancelled or how in ("finished", "failed") or (how == "stopped" and same_boot and not entry.put_back):
        return None
    # a machine that was started anew is not the run's fault, nor a runner that was killed before it had a driver
    lost = same_boot and (how == "lost" or (how == "not begun" and entry.pid != 0))
    if lost and not entry.losses:
        return None
    losses = entry.losses - lost
    overrides = entry.overrides if how == "not begun" else ()  # else they are in the run's session
    again = entry.waiting_again()
    return msgspec.structs.replace(again, put_back=False, fills=False, pid=0, losses=losses, overrides=overrides)
