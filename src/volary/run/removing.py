"""Removing a run: whole, and never one that is being written."""

from __future__ import annotations

import os
from contextlib import suppress

from volary.errors import RunError
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk


def refuse_live(directory: RunDirectory) -> None:
    """Raise RunError if a driver, or workers that it left, write the run at this moment."""
    if directory.is_live():
        raise RunError(f"{directory.path} is running; end it first: volary stop {directory.argument}")


def remove(directory: RunDirectory, disk: Disk | None = None) -> None:
    """Remove the run, and its checkpoints wherever they are. Raises RunError if it is running or cannot be removed.

    Then it is as it was, or, if a store with its checkpoints fails, these are left.
    """
    disk = disk or Disk()
    refuse_live(directory)
    with directory.lock():
        # renamed first: what a killed removal leaves must not look like a run
        gone = directory.path.with_name(f".gone-{directory.name}")
        try:
            disk.remove(gone)
            disk.rename(directory.path, gone)
        except OSError as error:
            raise RunError(f"{directory.path}: cannot be removed: {error.strerror}") from None
    try:
        discard(disk, gone)
    except OSError as error:
        raise RunError(f"{directory.path} is removed, but its checkpoints were not: {error}") from None


def bytes_of(directory: RunDirectory) -> int:
    """Bytes of the run's files, as far as they can be seen, and of its checkpoints if they are elsewhere."""
    elsewhere = directory.checkpoints.is_symlink()
    return _bytes(str(directory.path)) + (_bytes(str(directory.checkpoints)) if elsewhere else 0)


def _bytes(folder: str) -> int:
    found = 0
    with suppress(OSError), os.scandir(folder) as entries:  # gone meanwhile, or not ours to see
        for one in entries:
            below = one.is_dir(follow_symlinks=False)
            found += _bytes(one.path) if below else one.stat(follow_symlinks=False).st_size
    return found
