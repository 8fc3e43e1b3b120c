"""The table of the queue: one SQLite file of this user on this machine, for the order of runs and one change at a time.

What it has of a run is in the run's directory, too, and rebuilt from there if the file is lost or damaged.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from volary.errors import VolaryError
from volary.jobs.entry import PastUse, QueueEntry, entry_of, forget_entry, write_entry
from volary.jobs.processes.wakeups import wake_runner
from volary.run.directory import RunDirectory
from volary.run.lock import is_held

WAIT_S = 30.0  # for others that write
PAST_USES = 300  # that are kept
_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, entry BLOB NOT NULL, environment BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS past (run TEXT, boot TEXT, started_s REAL, used BLOB, UNIQUE (run, boot, started_s));
"""


def state_folder() -> Path:
    """The folder of this user's queues, on all machines that have his home directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "volary"


def queue_folder() -> Path:
    """The folder of this user's queue on this machine: a home directory may be that of many machines."""
    return state_folder() / f"queue-{socket.gethostname()}"


class QueueTable:
    """The table in `folder`, made if it is not there. Raises VolaryError, at any call, if it cannot be written.

    remarks: what is to be said of it, such as that it was rebuilt. A table that is new finds the runs in the folders
    that were known to the one before, and in `runs/` here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.remarks = folder, list[str]()
        self._read: tuple[object, list[QueueEntry]] | None = None  # the entries, as of which state
        self._file, self._known = folder / "queue.sqlite", folder / "folders"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise VolaryError(f"{folder}: cannot be made: {error.strerror}") from None
        with self._explained(), _only_one(folder):
            new = not self._file.exists()
            try:
                self._database = self._opened()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self._set_aside()
                self._database, new = self._opened(), True
            if new:
                self._rebuild()
            self._opened_as = self._file.stat()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> QueueTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def runner_lock(self) -> Path:
        """The file that the runner of this queue holds."""
        return self.folder / "runner.lock"

    @property
    def runner_log(self) -> Path:
        """The file that the runner writes to."""
        return self.folder / "runner.log"

    def has_runner(self) -> bool:
        """Whether somebody carries the queue out."""
        return is_held(self.runner_lock)

    def version(self) -> int:
        """A number that is another one once somebody else has written."""
        with self._explained():
            ((number,),) = self._database.execute("PRAGMA data_version")
        return int(number)

    def entries(self) -> list[QueueEntry]:
        """All runs of the queue, in their order."""
        state = self.version(), self._database.total_changes
        if self._read is None or self._read[0] != state:
            with self._explained():
                rows = self._database.execute("SELECT entry FROM runs").fetchall()
            found = (msgspec.json.decode(row, type=QueueEntry) for (row,) in rows)
            self._read = state, sorted(found, key=lambda one: one.order)
        return list(self._read[1])

    def runs(self) -> set[str]:
        """The paths of all runs of the queue."""
        with self._explained():
            return {run for (run,) in self._database.execute("SELECT run FROM runs")}

    def entry(self, run: str) -> QueueEntry | None:
        """The queue's entry of a run; None if it is not in it."""
        with self._explained():
            row = self._database.execute("SELECT entry FROM runs WHERE run = ?", (run,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=QueueEntry)

    def environment(self, run: str) -> dict[str, str]:
        """The variables with which the run was submitted; empty if they are lost."""
        with self._explained():
            row = self._database.execute("SELECT environment FROM runs WHERE run = ?", (run,)).fetchone()
        return {} if row is None else msgspec.json.decode(row[0], type=dict[str, str])

    def add(self, entry: QueueEntry, environment: Mapping[str, str]) -> QueueEntry:
        """Put a run into the queue, behind all others of its priority."""
        with self._alone():
            place = 1 + max((one.place for one in self.entries()), default=0.0)
            placed = msgspec.structs.replace(entry, place=place)
            self._put(placed, environment)
            self._know(Path(entry.run).parent)
        return placed

    def change(self, run: str, how: Callable[[QueueEntry], QueueEntry | None]) -> QueueEntry | None:
        """Let `how` say what a run's entry becomes, as nobody else changes it; None: it stays. Returns what it became,
        None if it stayed or is not there any more.
        """
        with self._alone():
            now = self.entry(run)
            changed = None if now is None else how(now)
            if changed is None or changed == now:
                return None
            self._put(changed, self.environment(run))
        return changed

    def remove(self, run: str) -> None:
        """The run leaves the queue."""
        with self._alone():
            with suppress(OSError):  # its folder has gone, or cannot be written to
                forget_entry(RunDirectory(run))
            self._database.execute("DELETE FROM runs WHERE run = ?", (run,))

    def keep_past(self, entry: QueueEntry, used: PastUse) -> None:
        """Keep what a start of a run had of its machine: for who looks, as nothing is decided by it."""
        row = (entry.run, entry.boot, entry.started_s, msgspec.json.encode(used))
        with self._alone():
            self._database.execute("INSERT OR REPLACE INTO past VALUES (?, ?, ?, ?)", row)
            self._database.execute("DELETE FROM past WHERE rowid <= (SELECT max(rowid) FROM past) - ?", (PAST_USES,))

    def past(self) -> list[PastUse]:
        """The newest that were kept, in the order of their ends."""
        with self._explained():
            rows = self._database.execute("SELECT used FROM past ORDER BY rowid").fetchall()
        return [msgspec.json.decode(row, type=PastUse) for (row,) in rows]

    def left_idle(self, leave: Callable[[], None]) -> bool:
        """Leave if it is idle, while nobody can add to it: who adds later sees that there is no runner."""
        with self._alone():
            if not self.is_idle():
                return False
            leave()
            return True

    def is_idle(self) -> bool:
        """Whether nobody runs, and nobody would start without being released."""
        return all(one.state == "waiting" and one.held for one in self.entries())

    def is_current(self) -> bool:
        """Whether the file is still the one that was opened, and was not replaced as it was damaged or removed."""
        with suppress(OSError):
            return os.path.samestat(self._file.stat(), self._opened_as)
        return False

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, isolation_level=None, timeout=WAIT_S)
        try:
            database.executescript(_SCHEMA)
            ((found,),) = database.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        except sqlite3.Error:
            database.close()
            raise
        self._file.chmod(0o600)
        return database

    def _set_aside(self) -> None:
        number = next(n for n in range(1, 10_000) if not (self.folder / f"damaged-{n}.sqlite").exists())
        aside = self.folder / f"damaged-{number}.sqlite"
        with suppress(FileNotFoundError):
            self._file.rename(aside)
        for part in ("-wal", "-shm"):
            self._file.with_name(self._file.name + part).unlink(missing_ok=True)
        self.remarks.append(f"{self._file} was damaged, and is kept as {aside.name}")

    def _rebuild(self) -> None:
        folders = {*map(Path, self._folders()), Path("runs").absolute()}
        found = [run for folder in folders for run in RunDirectory.all_below(folder)]
        entries = [(run, entry) for run in found if (entry := entry_of(run)) is not None]
        with self._alone():
            for run, entry in entries:
                self._put(msgspec.structs.replace(entry, run=str(run.path)), {})
        if entries:
            self.remarks.append(f"the queue was rebuilt from the directories of its {len(entries)} runs")

    def _folders(self) -> list[str]:
        return self._known.read_text().splitlines() if self._known.exists() else []

    def _know(self, folder: Path) -> None:
        if str(folder) not in self._folders():
            with self._known.open("a") as file:
                file.write(f"{folder}\n")

    def _put(self, entry: QueueEntry, environment: Mapping[str, str]) -> None:
        with suppress(FileNotFoundError):  # its directory is gone, which the runner's next look finds
            write_entry(entry)
        row = (entry.run, msgspec.json.encode(entry), msgspec.json.encode(dict(environment)))
        self._database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", row)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._read = None
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        wake_runner(self.folder)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: sqlite3.Error | OSError) -> VolaryError:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return VolaryError(f"the queue in {self.folder} cannot be written: {reason}")


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """One at a time opens the table, so that what one rebuilds nobody else does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
