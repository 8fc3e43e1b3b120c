"""A server process beside a worker: its child, which ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from volary.run.launch.assignment import Assignment
from volary.run.launch.meeting import Meeting

if TYPE_CHECKING:
    from volary.train.member.process import Membership

END_WITHIN_S = 10.0  # after the run: servers write and say goodbye themselves


@contextmanager
def server_beside(member: Membership) -> Iterator[None]:
    """Start server number `rank`, and see it end. From the main thread: the child dies with the thread it came from."""
    place = member.place
    meeting = Meeting(member.host, member.port, place.life, member.server_life)
    assignment = Assignment(directory=member.directory.path, meeting=meeting)
    if member.remote is not None:
        assignment = replace(member.remote.assignment, job="")
    settings = assignment.variables() | {
        "VOLARY_SERVER": str(place.rank),
        "VOLARY_DRIVER": str(os.getpid()),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "volary.serving"],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield
        child.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
        child.wait()
