"""The request to end a run: a file in its directory, which its driver looks for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from volary.errors import RunError
from volary.run.control.requests import attempt_to_ask
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file
from volary.run.owner import require_private

FILE = "stop.json"
How = Literal["after this step", "now"]


@dataclass(frozen=True)
class StopRequest:
    """attempt: which start of the run is meant, so that the next one is not stopped by it."""

    attempt: int
    how: How = "after this step"


def ask_to_stop(directory: RunDirectory, how: How = "after this step") -> None:
    """Ask whoever drives the run to end it, as Ctrl-C does there. Raises RunError if nobody does, or may be asked."""
    attempt = attempt_to_ask(directory)
    try:
        replace_file(Disk(), _file(directory), msgspec.json.encode(StopRequest(attempt, how)), mode=0o600)
    except OSError as error:
        raise RunError(f"{_file(directory)}: cannot be written: {error.strerror}") from None


def asked_to_stop(directory: RunDirectory, attempt: int) -> How | None:
    """How this attempt of the run was asked to end, by its owner or root; None if it was not."""
    try:
        require_private(_file(directory))
        with open_regular(_file(directory)) as file:
            found = msgspec.json.decode(file.read(), type=StopRequest)
    except (OSError, ValueError, RunError, msgspec.MsgspecError):
        return None
    return found.how if found.attempt == attempt else None


def forget_request(directory: RunDirectory) -> None:
    """Remove what was asked: the attempt that it is of is over. What cannot be removed asks no later attempt."""
    with suppress(OSError):
        Disk().remove(_file(directory))


def _file(directory: RunDirectory) -> Path:
    return directory.path / FILE
