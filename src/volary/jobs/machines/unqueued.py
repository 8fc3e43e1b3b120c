"""Runs that train without the queue of their machine, which leaves the cores alone that their drivers say they have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from volary.jobs.processes.wakeups import wake_runner
from volary.jobs.table import queue_folder
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, replace_file
from volary.run.launch.queued import QUEUED_RUN

FOLDER = "unqueued"  # beside the folder of the queue, which is made by who submits


class _Unqueued(msgspec.Struct, frozen=True):
    run: str
    cores: tuple[int, ...]


@contextmanager
def counted(directory: RunDirectory, cores: Sequence[int]) -> Iterator[None]:
    """The run, whose lock this process holds, has these cores meanwhile; nothing is said of what the queue started."""
    if not cores or QUEUED_RUN in os.environ:
        yield
        return
    name, file = hashlib.blake2b(str(directory.path).encode(), digest_size=12).hexdigest(), None
    with suppress(OSError, RuntimeError):  # no home, or none that can be written to: it is not counted
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        one = _Unqueued(str(directory.path), tuple(cores))
        replace_file(Disk(), folder / f"{name}.json", msgspec.json.encode(one), mode=0o600)
        file = folder / f"{name}.json"
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)
            wake_runner(queue_folder())


def cores_outside(queued: Collection[str] = ()) -> set[int]:
    """The cores of all such runs that train now, but for those that are `queued` by now."""
    found = set[int]()
    for file in _folder().glob("*.json"):
        with suppress(OSError, msgspec.MsgspecError):
            one = msgspec.json.decode(file.read_bytes(), type=_Unqueued)
            if not RunDirectory(one.run).is_live():  # its driver was killed
                file.unlink()
            elif one.run not in queued:
                found |= set(one.cores)
    return found


def changed_ns() -> int:
    """When such a run has begun or ended last, in nanoseconds since 1970; 0 if there was none."""
    with suppress(OSError):
        return _folder().stat().st_mtime_ns
    return 0


def _folder() -> Path:
    return queue_folder().with_name(f"{FOLDER}-{queue_folder().name}")
