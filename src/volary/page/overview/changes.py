"""Finds out whether a run has changed, by its database's files: nothing is opened, so it is quick for many runs."""

from __future__ import annotations

from pathlib import Path

from volary.run import tags
from volary.run.directory import RunDirectory

Signature = tuple[tuple[int, int] | None, ...]


def signature(directory: RunDirectory) -> Signature:
    """Another one after each write: when the database, its write-ahead file and the tags were written; their sizes."""
    files = (directory.database, Path(f"{directory.database}-wal"), directory.path / tags.FILE)
    return tuple(map(_written, files))


def _written(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found.st_size else None  # readers leave an empty write-ahead file
