"""The run's SQLite file, written by one process: events, steps, spans, counts, metrics. Readers may look meanwhile."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from volary.errors import RunError, VolaryError
from volary.run.database import counts, histograms, network, spans, traffic, usage
from volary.run.database.counts import CountRow
from volary.run.database.course import pyramid
from volary.run.database.ending import keep_ending, take_room
from volary.run.database.histograms import Histogram
from volary.run.database.kept_contributions import KeptContributions
from volary.run.database.network import LayerGraph
from volary.run.database.removed import put_back
from volary.run.database.spans import Span
from volary.run.database.traffic import Traffic
from volary.run.database.usage import Usage
from volary.run.database.write_behind import WriteBehind
from volary.run.machine import clock

MOST_WAITING = 200_000  # records, about 100 MB: half a minute of 64 workers with 100 steps a second
END_S = 30.0  # for what still waits when a run ends


class StepRow(NamedTuple):
    """One step of one worker. Times in seconds, bytes as this process handed them to the network.

    exchange_s is exposed communication: time that compute waited. loss is the mean over the global batch.
    """

    step: int
    rank: int
    ended_at: float
    epoch: float
    samples: int
    loss: float
    lr: float
    step_s: float
    data_s: float
    forward_s: float
    backward_s: float
    exchange_s: float
    optimizer_s: float
    sent_bytes: int
    received_bytes: int


STEP_FIELDS: dict[str, type] = get_type_hints(StepRow)
"""Each field's type, int or float, in the order of the table's columns."""
_COLUMNS = [f"{name} {'INTEGER' if of is int else 'REAL'}" for name, of in STEP_FIELDS.items()]
ATTEMPT = "life"  # a fact about the run: the newest attempt, by the name that it has in tables, too
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS info (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, life INTEGER NOT NULL, rank INTEGER, step INTEGER, kind TEXT NOT NULL,
    data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps ({", ".join(_COLUMNS)}, PRIMARY KEY (step, rank)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS metrics (
    step INTEGER, name TEXT, value REAL, at REAL NOT NULL, PRIMARY KEY (step, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS metrics_by_name ON metrics (name, step, value);
{pyramid.SCHEMA}{spans.SCHEMA}{counts.SCHEMA}{usage.SCHEMA}{histograms.SCHEMA}{network.SCHEMA}
{traffic.SCHEMA}"""
_INSERT_EVENT = "INSERT INTO events (at, life, rank, step, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_STEP = f"INSERT OR REPLACE INTO steps VALUES ({', '.join('?' * len(_COLUMNS))})"


class Journal:
    """Appends to the database at `path`, from any thread. `attempt` counts the starts of this run.

    behind: a thread of its own writes, so that a disk that is slow, or held by somebody else, holds nobody up. A full
    disk does not end a run: what could not be written is counted in `dropped`, and the sentence is in `fault`; once
    something can be written again, the run says so too. At the start of an attempt it is refused (VolaryError), for
    there the user can still mend it. replaced: another process has begun a newer attempt, so that this one writes no
    more.
    """

    def __init__(self, path: Path, *, behind: bool = False) -> None:
        self._lock = threading.Lock()
        self._behind = WriteBehind(MOST_WAITING) if behind else None
        self._reported_dropped = 0
        self._path = path
        self._database = _open(path)
        self.attempt = 0
        self.dropped = 0
        self.fault = ""
        self.replaced = False

    def start_attempt(self, step: int, kept: KeptContributions | None = None) -> int:
        """Begin a restart attempt from `step`; rows of earlier ones beyond it are removed. Raises VolaryError.

        kept: of workers that number what they contribute, and not the steps of the run.
        """
        with self._lock:
            try:
                take_room(self._path)
                self.attempt = _start_attempt(self._database, step, kept or KeptContributions({}, step))
            except sqlite3.DatabaseError as error:
                _roll_back(self._database)
                raise _unwritable(self._path, error) from None
            except OSError as error:
                raise VolaryError(f"{self._path}: cannot be written: {error.strerror}") from None
        return self.attempt

    def take_over(self, attempt: int) -> None:
        """Begin a restart attempt that goes on where `attempt` is, whose driver is lost: nothing of it is removed.

        Raises RunError if that is not the newest attempt any more, and VolaryError if it cannot be written.
        """
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                if _attempt(self._database) == attempt:
                    _begin(self._database, attempt + 1)
                    self.attempt = attempt + 1
                self._database.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                _roll_back(self._database)
                if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                    raise RunError(
                        f"{self._path} is locked: a process was stopped in the middle of a write, perhaps the driver "
                        "that is lost; end that process (kill -9), and repeat this command"
                    ) from None
                raise _unwritable(self._path, error) from None
        if self.attempt != attempt + 1:
            raise RunError(f"{self._path.parent}: another process was quicker, and drives the run now")

    def continue_attempt(self) -> None:
        """Write as part of the newest attempt, which has ended. The caller holds the run's lock."""
        with self._lock:
            self.attempt = _attempt(self._database)

    def note(self, **facts: Any) -> None:
        """Set facts about the run (state, steps planned, ...), each replacing its older value."""
        rows = [(key, str(value)) for key, value in facts.items()]
        self._write("INSERT OR REPLACE INTO info VALUES (?, ?)", rows)

    def end(self, **facts: Any) -> None:
        """Set the facts with which this attempt ends, a full disk notwithstanding."""
        self._unwritten()  # or there may be no room for it behind all that waits
        before = self.dropped
        self.note(**facts)
        if self._unwritten() or self.dropped > before:
            with contextlib.suppress(OSError):  # nothing is left to be tried
                keep_ending(self._path, {key: str(value) for key, value in facts.items()})

    def event(self, kind: str, rank: int | None = None, step: int | None = None, /, **data: Any) -> None:
        """Record that something happened."""
        self.events([(kind, rank, step, data)])

    def events(
        self,
        found: Iterable[tuple[str, int | None, int | None, Mapping[str, Any]]],
        lost: Callable[[], object] = lambda: None,
    ) -> None:
        """Record what happened: of each its kind, rank, step and data. lost: called if that cannot be written."""
        now, attempt = clock.now_s(), self.attempt
        rows = [(now, attempt, rank, step, kind, json.dumps(data)) for kind, rank, step, data in found]
        self._write(_INSERT_EVENT, rows, lost)

    def steps(self, rows: Iterable[StepRow]) -> None:
        """Record steps of one or more workers."""
        self._write(_INSERT_STEP, [tuple(row) for row in rows])  # SQLite binds plain tuples quicker

    def take_back(self, ranks: Iterable[int], step: int) -> None:
        """Steps beyond `step` are done again without these workers."""
        self._write("DELETE FROM steps WHERE rank = ? AND step > ?", [(rank, step) for rank in ranks])

    def spans(self, found: Iterable[Span]) -> None:
        """Record what workers did within steps, and when; of many the newest are kept."""
        self._write(spans.INSERT, [tuple(span) for span in found])

    def usage(self, found: Iterable[Usage]) -> None:
        """Record what workers and machines use; of much the newest is kept."""
        self._write(usage.INSERT, [tuple(one) for one in found])

    def histograms(self, found: Iterable[Histogram]) -> None:
        """Record how values are spread; of many the newest are kept."""
        self._write(histograms.INSERT, histograms.rows(found))

    def network(self, graph: LayerGraph) -> None:
        """Record the layers of the network, replacing those of an earlier attempt."""
        self._write(network.REPLACE, network.rows(graph))

    def counts(self, found: Iterable[CountRow]) -> None:
        """Add to what is counted: how often what happened, to whom."""
        counted = list(found)
        self._write(counts.ADD, [(one.kind, one.rank, one.server, one.value, one.count) for one in counted])
        self._write(counts.ADD_OVER_TIME, counts.over_time(counted, clock.now_s()))

    def traffic(self, rank: int, found: Iterable[Traffic]) -> None:
        """Add to what a worker put on and took off the wire."""
        self._write(traffic.ADD, [(rank, *one) for one in found])

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Record what an evaluation at `step` measured."""
        rows = [(step, name, value, clock.now_s()) for name, value in values.items()]
        self._write("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Write everything into the one file, so that it can be copied alone."""
        if self._behind is not None:
            unwritten = self._unwritten()
            self._behind.end()
            if unwritten:
                return  # the thread is in the database still
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                # closing alone leaves the newest in the write-ahead file while a reader has the run open
                self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            if self._path.parent.is_dir() and not self._path.exists():
                with contextlib.suppress(sqlite3.Error, OSError):  # the run is whole without it, but for its figures
                    put_back(self._database, self._path)
            self._database.close()

    def _unwritten(self) -> int:
        """How many records still wait after a while."""
        return 0 if self._behind is None else self._behind.wait(END_S)

    def _write(self, statement: str, rows: list[tuple[Any, ...]], lost: Callable[[], object] = lambda: None) -> None:
        if self._behind is None:
            self._commit(statement, rows, lost)
        elif not self._behind.put(partial(self._commit, statement, rows, lost), len(rows)):
            self._lose(len(rows), f"the disk of {self._path} is slow", lost)

    def _commit(self, statement: str, rows: list[tuple[Any, ...]], lost: Callable[[], object]) -> None:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                # the lock keeps others out, but not on every file system, nor from a copy
                self.replaced = self.replaced or _attempt(self._database) > self.attempt
                if not self.replaced:
                    self._database.executemany(statement, rows)
                    self._tell_dropped()
                self._database.execute("COMMIT")
            except sqlite3.OperationalError as error:
                _roll_back(self._database)
                self._lose(len(rows), str(error), lost)

    def _tell_dropped(self) -> None:
        if (dropped := self.dropped) > self._reported_dropped:
            text = json.dumps({"text": self.fault})
            self._database.execute(_INSERT_EVENT, (clock.now_s(), self.attempt, None, None, "warning", text))
            self._reported_dropped = dropped

    def _lose(self, records: int, why: str, lost: Callable[[], object]) -> None:
        self.dropped += records
        self.fault = f"{why}: {self.dropped} records of this run were not written"
        lost()


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")
    except sqlite3.DatabaseError as error:
        database.close()
        raise _unwritable(path, error) from None
    return database


def _unwritable(path: Path, error: sqlite3.DatabaseError) -> VolaryError:
    """The machine does not let it be written (no space, no permission), or it is no database."""
    kind = VolaryError if isinstance(error, sqlite3.OperationalError) else RunError
    return kind(f"{path}: cannot be written: {error}")


def _attempt(database: sqlite3.Connection) -> int:
    """The newest; -1 before the first."""
    row = database.execute("SELECT value FROM info WHERE key = ?", (ATTEMPT,)).fetchone()
    return int(row[0]) if row else -1


def _start_attempt(database: sqlite3.Connection, step: int, kept: KeptContributions) -> int:
    database.execute("BEGIN IMMEDIATE")
    attempt = _attempt(database) + 1
    for table, number in (("steps", "step"), ("spans", "step"), ("groups", pyramid.ENDS_AT)):
        database.execute(f"DELETE FROM {table} WHERE {number} > {kept.limit}")
    database.execute("DELETE FROM metrics WHERE step > ?", (step,))
    database.execute(histograms.TAKE_BACK, (kept.of_first,))
    # in this attempt workers may count themselves
    database.execute("DELETE FROM info WHERE key IN ('steps_now', 'counted_from', 'counted_from_step')")
    _begin(database, attempt)
    database.execute("COMMIT")
    return attempt


def _begin(database: sqlite3.Connection, attempt: int) -> None:
    # its workers have yet to come
    database.execute("DELETE FROM info WHERE key IN ('pids', 'hosts') OR key LIKE 'doing!_%' ESCAPE '!'")
    database.execute("INSERT OR REPLACE INTO info VALUES (?, ?)", (ATTEMPT, str(attempt)))


def _roll_back(database: sqlite3.Connection) -> None:
    # a full disk may have rolled back by itself already, or may fail here too: then the next BEGIN says so
    if database.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
