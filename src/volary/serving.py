"""A server's command: `python -m volary.serving`, started by Volary's driver, or by the worker that it lives beside."""

from __future__ import annotations

import os
import signal
import sys
import traceback

from volary.errors import BadInput, VolaryError, WorkerFailed
from volary.placement import find
from volary.placement._base import whole
from volary.run.directory import RunDirectory
from volary.run.launch.assignment import Assignment
from volary.run.launch.parent import die_with_parent
from volary.run.log import print_into
from volary.run.machine.addresses import own_address


def main() -> int:
    """Be one parameter server until the run is over; returns the exit code."""
    for notice in (signal.SIGTERM, signal.SIGINT):  # meant for the run: its roster says when servers are to end
        signal.signal(notice, signal.SIG_IGN)
    try:
        die_with_parent()
        assignment = Assignment.found(os.environ)
        if assignment is None:
            raise BadInput("a server takes part in a run that `volary train` starts, with strategy.exchange=server")
        numbered = "VOLARY_SERVER" in os.environ  # else a launcher has numbered it
        number = whole(os.environ, "VOLARY_SERVER", "volary") if numbered else find().rank
        from volary.train.member.remote_directory import RemoteDirectory

        meeting, remote = assignment.meeting, RemoteDirectory.unless_seen(assignment, "server", number)
        directory = remote.directory if remote else RunDirectory(assignment.directory)
        if remote or not numbered:
            print_into(directory.server_log(number))
        if remote:
            remote.follow(directory.server_log(number))
        from volary.train.served.server.serve import serve

        try:
            address = own_address(assignment.interface, meeting.host)
            serve(directory, number, (meeting.host, meeting.port), meeting.attempt_id, address, remote)
        finally:
            if remote:
                remote.settle()
        return 0
    except VolaryError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:  # the user's rule may raise anything
        traceback.print_exc()
        return WorkerFailed.exit_code


if __name__ == "__main__":
    sys.exit(main())
