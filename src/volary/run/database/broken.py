"""A run's database that cannot be read: it is set aside, and the run gets a new one. Checkpoints need none."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.disk import Disk


def set_broken_aside(directory: RunDirectory) -> None:
    """Keep a database that is missing or broken beside a new one, which says so. The caller holds the run's lock."""
    disk, path = Disk(), directory.database
    if not (fault := _fault(path)):
        return
    names = (f"{path.name}.broken-{n}" for n in count(1))
    aside = next(name for name in names if not list(path.parent.glob(f"{name}*")))
    kept = f"; what there was is kept as {aside}" if path.exists() else ""
    for end in ("", "-wal", "-shm"):  # a new database would take the old one's pages out of the others
        with suppress(FileNotFoundError):
            disk.rename(path.with_name(path.name + end), path.with_name(aside + end))
    for verdict in directory.verdicts.glob("rank-*.json"):  # they name lives, which are counted from 0 again
        disk.remove(verdict)
    with closing(Journal(path)) as journal:
        journal.event("warning", text=f"{path.name} {fault}: a new one begins, without what was recorded{kept}")


def _fault(path: Path) -> str:
    """Say what is wrong with the database; empty if nothing is."""
    if not path.exists():
        return "was missing"
    if not path.is_file():
        return "was no file"
    try:
        # only looked at: whoever may write clears the log of changes away
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            database.execute("SELECT key, value FROM info").fetchall()
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return f"could not be read ({error})"
    return "" if verdict == "ok" else f"was damaged ({verdict.splitlines()[-1]})"
