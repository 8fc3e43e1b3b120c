"""A worker that reaches its run through a gate alone."""

from __future__ import annotations

import os
from dataclasses import replace

from volary.comm.relay import forwarder
from volary.comm.relay.messages import virtual_address
from volary.run.launch.assignment import WAY, Assignment


def at_gate(assignment: Assignment, rank: int) -> tuple[Assignment, str]:
    """The assignment as this process can follow it, and the address at which its sockets are to listen.

    As it is, and no address, for one that reaches the run itself. Raises ConnectionLost or KeyRefused if the gate is
    not reached. The way leaves this process's environment, which its children would inherit.
    """
    os.environ.pop(WAY, None)
    way, meeting = assignment.way, assignment.meeting
    if way is None:
        return assignment, ""
    assert assignment.key is not None, "who has a way has the key"
    through = forwarder.Forwarder(way, assignment.key, host=virtual_address(rank))
    through.be_called()
    forwarder.use(through)
    host, port = through.to((meeting.host, meeting.port))
    return replace(assignment, meeting=replace(meeting, host=host, port=port)), through.host
