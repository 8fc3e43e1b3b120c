"""Requests to a run while it trains: checked, written down, and passed on to whoever carries them out."""

from __future__ import annotations

import time

import msgspec

from volary.comm.control.service import Replies
from volary.driver.heartbeats import HeartbeatService
from volary.driver.server_group import ServerGroup
from volary.errors import VolaryError
from volary.run.control.requests import ChangeRate, Request
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, replace_file
from volary.session.spec import Session


def written_down(directory: RunDirectory, request: Request, journal: Journal, step: int) -> bool:
    """Note that it was asked for, and keep in the run's session what is changed by it; whether it can be done.

    What cannot is a warning of the run. The session changes first, so that workers which are started anew know it.
    """
    try:
        if isinstance(request, ChangeRate):
            text = Session.read(directory.session, [f"optimizer.lr={request.lr!r}"]).to_yaml()
            replace_file(Disk(), directory.session, text.encode())
    except (OSError, VolaryError) as error:
        journal.event("warning", None, step, text=f"asked to {request.words}, which cannot be done: {error}")
        return False
    journal.event("asked", None, step, what=request.words)
    return True


def pass_on(request: Request, hub: HeartbeatService, keepers: ServerGroup) -> Replies:
    """Pass a request to whoever keeps the parameters, or else to the workers, which agree on the step."""
    replies = keepers.ask(request, time.monotonic())
    return hub.ask(msgspec.to_builtins(request)) if replies is None else replies
