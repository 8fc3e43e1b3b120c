"""The durable primitives: everything a run must not lose goes through these few calls.

They are an object that is handed in, so that a test can let the n-th call fail, or the process die there.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from volary.errors import BadInput

TRY_AGAIN_AFTER_S = (1.0, 2.0, 4.0)  # what a run ends with is written again after these, before it is given up


class Disk:
    """Writes, syncs and renames as the operating system does."""

    def write(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        """Write `data` to a new or emptied file at `path`, not yet synced. Raises OSError."""
        with self.create(path, mode) as file:
            file.write(data)

    def create(self, path: Path, mode: int = 0o644) -> BinaryIO:
        """A new or emptied file at `path`, to be written to and closed. Raises OSError."""
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb")

    def sync(self, path: Path) -> None:
        """Wait until the file or folder at `path` is on the disk. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give `old` the name `new` in one step; a file there is replaced, a folder with content is not."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with its content; one that is not there is fine."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def refusal(error: OSError, path: Path, needed_bytes: int) -> str:
    """Why `path` could not be written, with what it needs and what is free there, in bytes."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        free = f"{shutil.disk_usage(there).free:,}"
    except OSError:
        free = "unknown"
    return f"{path}: {error.strerror or error} (needs {needed_bytes:,} bytes; {free} are free there)"


def refuse_unwritable(what: str, folder: Path, *, make: bool = False) -> None:
    """Raise BadInput if nothing can be made in `folder`, found by making something; nothing is left of that.

    what: the setting or option that says so. make: a folder that is missing would be made where it can be.
    """
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists() or not make)
        probe = there / f".volary-{os.getpid()}-{secrets.token_hex(4)}"
        probe.mkdir()  # and no folder that is missing: another process may be about to write there
        probe.rmdir()
    except OSError as error:
        accepted = "a folder in which files can be made" if make else "a file in a folder that can be written"
        raise BadInput(f"{what}: {folder} cannot be written: {error.strerror}; accepted: {accepted}") from None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to be read. Raises OSError for all else (a link, a FIFO, a device), which is not opened."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    # what it was may have been replaced since: then this neither follows a link nor waits for a writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def replace_file(disk: Disk, path: Path, data: bytes, mode: int = 0o644) -> None:
    """Give `path` the content `data`: after a crash it has the old content or the new one, whole. Raises OSError.

    One writer a path: what earlier writers left of theirs is cleared away.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        disk.write(draft, data, mode)
        disk.sync(draft)
        disk.rename(draft, path)
        disk.sync(path.parent)
    finally:
        for left in path.parent.glob(f".{path.name}.*"):
            disk.remove(left)
