"""Requests to the queue of this machine, by verbs, by the page and by whoever follows a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from volary.engine.launchers.queue import JobState
from volary.errors import BadInput, RunError
from volary.errors.raised import shown
from volary.jobs.asked import QueuedDemand, QueueRequest
from volary.jobs.entry import Capacity, PastUse, QueueEntry
from volary.jobs.forecast import expected_starts
from volary.jobs.machinery import RunMachinery, moment_here, newest_attempt
from volary.jobs.schedule import decide
from volary.jobs.service import ensure_runner
from volary.jobs.session_file import SubmittedFile
from volary.jobs.table import QueueTable, queue_folder
from volary.run.control.stopping import How, ask_to_stop
from volary.run.directory import RunDirectory
from volary.run.launch.queued import LOCAL, QUEUED_RUN, QueuedJob, job_of, note_job


@dataclass(frozen=True)
class QueueRow:
    """A run of the queue as a list shows it. reason: why it waits, or stops. starts_in_s: None if not known."""

    entry: QueueEntry
    reason: str = ""
    starts_in_s: float | None = None


@dataclass(frozen=True)
class QueueView:
    """The whole queue: those that run, then those that wait, in their order; and what the machine has for them.

    carried_out: False if somebody could start, or runs, and no runner is there to see to it. remarks: on the settings,
    and on machines that cannot be used now. past: the newest starts of runs that have ended.
    """

    rows: list[QueueRow]
    capacity: Capacity
    carried_out: bool
    remarks: list[str]
    past: list[PastUse] = field(default_factory=list)


class LocalQueue:
    """The queue of this user on this machine; `remarks`: what was found when it was opened."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or queue_folder()
        self.remarks: list[str] = []

    def look(self, job: str) -> JobState | None:
        """How the run at the path `job` stands; one that the queue does not have is over. The queue is carried out."""
        with self._table() as table:
            ensure_runner(table)
            entry = table.entry(job)
            if entry is None:
                return JobState(waiting=False, over=True, words="")
            if entry.state != "waiting":
                return JobState(waiting=False, over=False, words=entry.state)
            before = [one for one in table.entries() if one.state != "waiting" or one.order <= entry.order]
            rows = _view(table, before).rows
        reason = next(row.reason for row in rows if row.entry.run == job)
        return JobState(waiting=True, over=False, words=reason)

    def is_inside(self, job: str) -> bool:
        """Whether the queue has started this process to drive that run."""
        return os.environ.get(QUEUED_RUN) == job

    def cancel(self, job: str, *, if_waiting: bool = False) -> None:
        """Take a run out of the queue; one that runs is stopped after its step, and RunError raised for one that the
        queue does not have. if_waiting: both are left alone.
        """

        def cancelled(entry: QueueEntry) -> QueueEntry | None:
            if if_waiting and entry.state != "waiting":
                return None
            return msgspec.structs.replace(entry, cancelled=True, put_back=False)

        with self._table() as table:
            if not if_waiting:
                self._found(table, job)
            changed = table.change(job, cancelled)
            if changed is not None and changed.state == "waiting":
                table.remove(job)
            ensure_runner(table)

    def stop(self, directory: RunDirectory, how: How = "after this step") -> None:
        """Ask a run that is driven to stop, and let it not wait here again, as it would if it gives way meanwhile.

        Raises RunError if nobody drives it, or may be asked.
        """
        ask_to_stop(directory, how)
        if (job := job_of(directory)) is not None and job.engine == LOCAL:
            with self._table() as table:
                table.change(job.number, lambda entry: msgspec.structs.replace(entry, cancelled=True, put_back=False))

    def submit(
        self,
        directory: RunDirectory,
        asked: QueueRequest,
        admission: QueuedDemand,
        overrides: Sequence[str] = (),
        file: Path | None = None,
    ) -> QueueEntry:
        """Queue a run whose directory stands. overrides: of its settings, as it is resumed. file: that its session was
        read from. Raises VolaryError.
        """
        attempt = newest_attempt(directory)
        entry = QueueEntry(
            run=str(directory.path),
            demand=admission.demand,
            priority=asked.priority,
            after=asked.runs_before(),
            time_s=asked.time_s,
            losses=asked.retries,
            held=asked.hold,
            attempt=attempt,
            folder=str(Path.cwd()),
            python=sys.executable,
            overrides=tuple(overrides),
            asked_bytes=None if asked.memory is None else admission.demand.memory_bytes,
            memory_from=admission.memory_from,
            movable=admission.movable,
            between=admission.between,
            file=None if file is None else SubmittedFile.of(file),
        )
        note_job(directory, QueuedJob(LOCAL, entry.run, attempt))
        with self._table() as table:
            _refuse_circle(table, entry)
            placed = table.add(entry, os.environ)
            ensure_runner(table)
        return placed

    def hold(self, run: str) -> None:
        """Let a run wait until it is released; one that runs is stopped after its step. Raises RunError."""
        self._change(run, lambda entry: msgspec.structs.replace(entry, held=True))

    def release(self, run: str) -> None:
        """Let a run that was held start. Raises RunError."""
        self._change(run, lambda entry: msgspec.structs.replace(entry, held=False))

    def set_priority(self, run: str, priority: int) -> None:
        """Give it another priority. Raises RunError."""
        self._change(run, lambda entry: msgspec.structs.replace(entry, priority=priority))

    def move(self, run: str, before: str | None) -> None:
        """Put it in front of another one of its priority; None: in front of all of them. Raises RunError, BadInput."""
        with self._table() as table:
            mine = self._found(table, run)
            others = [one for one in table.entries() if one.priority == mine.priority and one.run != run]
            if before is None:
                place = min((one.place for one in others), default=mine.place + 1) - 1
            else:
                other = self._found(table, before)
                if other.priority != mine.priority:
                    raise BadInput(
                        f"{shown(run)} has priority {mine.priority}, and {shown(before)} has {other.priority}; "
                        "accepted: one of the same priority"
                    )
                earlier = max((one.place for one in others if one.place < other.place), default=other.place - 2)
                place = (earlier + other.place) / 2
            table.change(run, lambda entry: msgspec.structs.replace(entry, place=place))
            ensure_runner(table)

    def move_by(self, run: str, places: int) -> None:
        """Move one that waits by so many places among those of its priority that do: up if negative, to an end at most.

        Raises RunError, BadInput.
        """
        with self._table() as table:
            mine = self._found(table, run)
            waiting = [one for one in table.entries() if one.state == "waiting" and one.priority == mine.priority]
        if mine.state != "waiting":
            raise BadInput(f"{shown(run)} is {mine.state}; accepted: one that waits")
        order = [one.run for one in waiting]
        at = order.index(run)
        to = max(0, min(len(order) - 1, at + places))
        if to < at:
            self.move(run, order[to])
        elif to > at and to + 1 < len(order):
            self.move(run, order[to + 1])
        elif to > at:
            self._change(run, lambda entry: msgspec.structs.replace(entry, place=waiting[-1].place + 1))

    def runs(self) -> set[str]:
        """The paths of all runs of the queue, which is carried out."""
        with self._table() as table:
            ensure_runner(table)
            return table.runs()

    def rows(self) -> list[QueueRow]:
        """All runs of the queue: those that run, then those that wait, in their order."""
        with self._table() as table:
            for entry in table.entries():
                if entry.state == "waiting" and not Path(entry.run).is_dir():  # where no runner looks, as all are held
                    table.remove(entry.run)
            ensure_runner(table)
            view = _view(table, table.entries())
            self.remarks += view.remarks
            return view.rows

    def view(self) -> QueueView | None:
        """The queue as it is: nothing is started, or taken out of it. None if no run was ever submitted here."""
        if not self._folder.exists():
            return None
        with self._table() as table:
            return replace(_view(table, table.entries()), past=table.past())

    def _change(self, run: str, how: Callable[[QueueEntry], QueueEntry]) -> None:
        with self._table() as table:
            self._found(table, run)
            table.change(run, how)
            ensure_runner(table)

    def _found(self, table: QueueTable, run: str) -> QueueEntry:
        if (entry := table.entry(run)) is not None:
            return entry
        job = job_of(RunDirectory(run))
        if job is not None and job.engine != LOCAL:
            raise RunError(f"{shown(run)} is {job}, which has an order of its own; accepted: volary queue cancel")
        raise RunError(f"{shown(run)} is not in the queue; `volary queue` lists what is")

    @contextmanager
    def _table(self) -> Iterator[QueueTable]:
        with QueueTable(self._folder) as table:
            self.remarks += table.remarks
            yield table


def _refuse_circle(table: QueueTable, entry: QueueEntry) -> None:
    """Raise BadInput if the run would come after one that comes after it."""
    after = {one.run: one.after for one in table.entries()}
    for first in entry.after:
        behind, looked_at = [first], set[str]()
        while behind:
            run = behind.pop()
            if entry.run in (run, *after.get(run, ())):
                name = shown(entry.run)
                raise BadInput(f"after: {shown(first)} comes after {name}; accepted: runs that do not wait for it")
            looked_at.add(run)
            behind += [one for one in after.get(run, ()) if one not in looked_at]


def _view(table: QueueTable, entries: Sequence[QueueEntry]) -> QueueView:
    machinery, now_s = RunMachinery(table), moment_here().now_s
    capacity, ends = machinery.capacity(entries), machinery.ends(entries)
    here = {entry.run for entry in entries}
    before = {run for entry in entries for run in entry.after} - here
    unfinished = [run for run in before if machinery.unfinished(run)]
    decided = decide(entries, capacity, now_s, ends=ends, unfinished=unfinished)
    starts = expected_starts(entries, capacity, now_s, ends=ends, unfinished=unfinished)
    rows = []
    for entry in sorted(entries, key=lambda one: (one.state == "waiting", *one.order)):
        reason = decided.reasons.get(entry.run)
        if entry.state != "waiting":
            words = "saving, to give way" if entry.put_back and entry.state == "stopping" else ""
            where = f"on {entry.given.host}" if entry.given and entry.given.host else ""
            rows.append(QueueRow(entry, "; ".join(filter(None, [where, words]))))
        else:
            starts_s, changed = starts.get(entry.run), entry.file.remark if entry.file else ""
            words = "; ".join(filter(None, [reason.words if reason else "starts now", changed]))
            rows.append(QueueRow(entry, words, None if starts_s is None else starts_s - now_s))
    remarks = machinery.remarks + [host.why_not for host in capacity.hosts if host.why_not and rows]
    return QueueView(rows, capacity, table.is_idle() or table.has_runner(), remarks)
