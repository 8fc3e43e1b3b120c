"""A worker's command: `python -m volary.worker`, started by Volary's driver, or by a launcher with a session file."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from volary.errors import BadInput, VolaryError
from volary.placement import Place, find, text
from volary.placement._parent import die_with_parent
from volary.run.directory import RunDirectory

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def main() -> int:
    """Be one worker until the run is over; returns the exit code."""
    try:
        place = find()
        die_with_parent()
        _stay_on_cores()
        _keep_freed_memory()
        if place.launcher == "local":
            return _local(place)
        return _launched(place, sys.argv[1:])
    except VolaryError as error:
        print(error.told, file=sys.stderr)
        return error.exit_code


def _local(place: Place) -> int:
    from volary.train.process import Membership, work

    # beats begin before torch is imported: a slow start is seen as one
    directory = RunDirectory(text(os.environ, "VOLARY_RUN", "volary"))
    life = text(os.environ, "VOLARY_SERVER_LIFE", "volary")
    return work(Membership.claim(place, directory, *place.meet_at, life), text(os.environ, "VOLARY_JOB", "volary"))


def _launched(place: Place, arguments: list[str]) -> int:
    trust = arguments[:1] == ["--trust"]
    arguments = arguments[trust:]
    if not arguments:
        raise BadInput(f"{place.launcher}: name a session file, as in `-m volary.worker session.yaml`")
    from volary.train.meeting import meet
    from volary.train.process import work

    with meet(place, Path(arguments[0]), arguments[1:], trust=trust) as member:
        if place.writes_log:
            _write_to(member.directory.log(place.rank))
        return work(member, "volary.train.run_session:run_session")


def _write_to(log: Path) -> None:
    """Let everything that this process prints go to its log."""
    with log.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def _stay_on_cores() -> None:
    if (cores := os.environ.get("VOLARY_CORES")) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})


def _keep_freed_memory() -> None:
    """Each step asks for what the last one freed; handed back, it comes as fresh pages, which take some percent."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every libc
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**25)  # the most that glibc takes
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


if __name__ == "__main__":
    sys.exit(main())
