"""A worker's command: `python -m volary.worker`, started by Volary's driver, or by a launcher with a session file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from volary.errors import BadInput, Stopped, VolaryError
from volary.errors.interruption import raise_when_interrupted
from volary.placement import Place, find
from volary.run.directory import RunDirectory
from volary.run.launch.assignment import Assignment
from volary.run.launch.parent import die_with_parent
from volary.run.log import print_into
from volary.run.machine.addresses import own_address
from volary.run.machine.allocator import keep_freed_memory, take_huge_pages
from volary.run.machine.cores import cores_each, cores_here, share_of
from volary.run.machine.open_files import allow_connections


def main() -> int:
    """Be one worker until the run is over; returns the exit code."""
    try:
        return work_at(find(), sys.argv[1:])
    except VolaryError as error:
        print(error.report, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before it was a member of a run
        return Stopped.exit_code


def work_at(place: Place, arguments: list[str]) -> int:
    """Be the worker with this place until the run is over; returns the exit code.

    arguments: a session file and overrides, where a launcher started this process. Raises VolaryError.
    """
    die_with_parent()
    keep_freed_memory()
    take_huge_pages()
    allow_connections(2 * place.world_size)  # one to each other worker, and while they meet another
    assignment = Assignment.found(os.environ)
    return _launched(place, arguments) if assignment is None else _assigned(place, assignment)


def _assigned(place: Place, assignment: Assignment) -> int:
    """Be a worker of the run whose driver had this process started."""
    from volary.train.member.behind_gate import at_gate
    from volary.train.member.process import Membership, work
    from volary.train.member.remote_directory import RemoteDirectory

    if place.launcher == "local":
        _stay_on_cores()
    else:
        _take_share_of_cores(place)
    # beats begin before torch is imported: a slow start is seen as one
    assignment, address = at_gate(assignment, place.rank)
    meeting = assignment.meeting
    remote = RemoteDirectory.unless_seen(assignment, "worker", place.rank)
    directory = remote.directory if remote else RunDirectory(assignment.directory)
    place = replace(place, address=address or own_address(assignment.interface, meeting.host))
    member = Membership.claim(place, directory, meeting)
    if place.launcher != "local":
        print_into(directory.log(place.rank))
    if remote:
        remote.follow(directory.log(place.rank))
    return work(replace(member, remote=remote), assignment.job)


def _launched(place: Place, arguments: list[str]) -> int:
    trust = arguments[:1] == ["--trust"]
    arguments = arguments[trust:]
    raise_when_interrupted()
    if not arguments:
        raise BadInput(f"{place.launcher}: name a session file, as in `-m volary.worker session.yaml`")
    from volary.train.member.meeting import meet_for_session
    from volary.train.member.process import work

    with meet_for_session(place, Path(arguments[0]), arguments[1:], trust=trust) as member:
        if place.writes_log:
            print_into(member.directory.log(place.rank))
        return work(member, "volary.train.worker.job:run_session")


def _stay_on_cores() -> None:
    if (cores := os.environ.get("VOLARY_CORES")) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})


def _take_share_of_cores(place: Place) -> None:
    """The share of this machine's cores that engine `local` would give: sums depend on the number of threads."""
    if place.beside is None:
        return
    cores = cores_here()
    share = share_of(cores, place.local_rank, place.beside)
    os.environ |= {"OMP_NUM_THREADS": str(len(share))} | cores_each(cores, place.beside)
    if os.environ.get("VOLARY_PIN") == "1" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(share))


if __name__ == "__main__":
    sys.exit(main())
