"""A database whose file somebody has removed while it is open: all of it can still be read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def put_back(database: sqlite3.Connection, path: Path) -> None:
    """Write a copy of the open `database` to `path`, whole or not at all. Raises sqlite3.Error and OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(draft)) as copy:
            database.backup(copy)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
