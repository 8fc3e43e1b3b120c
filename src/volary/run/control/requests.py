"""Requests to a run while it trains: files in its directory, which its driver takes in order."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from volary.errors import RunError
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file
from volary.run.owner import require_private, user_name
from volary.run.resuming import is_resumable

_PREFIX, _SUFFIX = "request-", ".json"
# why nobody can leave, or join, a run that ends with a lost worker
FIXED = "its workers are fixed: its updates need each of them"


class WriteCheckpoint(msgspec.Struct, frozen=True, tag="checkpoint", forbid_unknown_fields=True):
    """Write a checkpoint after the step that is being done."""

    @property
    def words(self) -> str:
        return "write a checkpoint"


class ChangeRate(msgspec.Struct, frozen=True, tag="rate", forbid_unknown_fields=True):
    """Asks for the learning rate `lr`, before any schedule, from the next step on; saved at once, so that it stays."""

    lr: Annotated[float, msgspec.Meta(gt=0, lt=1e9)]

    @property
    def words(self) -> str:
        return f"train with optimizer.lr={self.lr:g}"


class LeaveRun(msgspec.Struct, frozen=True, tag="leave", forbid_unknown_fields=True):
    """Let the worker of this rank leave, and the others go on; for the driver alone. now: it is expelled, as it is."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    now: bool = False

    @property
    def words(self) -> str:
        return f"expel rank {self.rank}" if self.now else f"let rank {self.rank} leave"


class ChangeMembers(msgspec.Struct, frozen=True, tag="members", forbid_unknown_fields=True):
    """From the driver to its workers: pause after this step, as others follow the members of this number.

    leaving: ranks that are not among those. following: who these are, as far as it is known, in their order.
    """

    number: int
    leaving: tuple[int, ...] = ()
    following: tuple[int, ...] = ()


Request = WriteCheckpoint | ChangeRate  # which workers or their roster carry out
WorkerRequest = Request | ChangeMembers


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """attempt: which start of the run is meant, so that the next one does not do it once more."""

    attempt: int
    request: Request | LeaveRun


def ask(directory: RunDirectory, request: Request | LeaveRun) -> None:
    """Ask whoever drives the run. Raises RunError if nobody does or may be asked, or the loop is the user's own."""
    attempt = attempt_to_ask(directory)
    if not isinstance(request, LeaveRun) and not is_resumable(directory):
        raise RunError(f"{directory.path} is a run of a training loop of your own, which keeps its own state")
    name = f"{_PREFIX}{time.time_ns():020d}-{secrets.token_hex(4)}{_SUFFIX}"
    try:
        replace_file(Disk(), directory.path / name, msgspec.json.encode(_Asked(attempt, request)), mode=0o600)
    except OSError as error:
        raise RunError(f"{directory.path / name}: cannot be written: {error.strerror}") from None


def attempt_to_ask(directory: RunDirectory) -> int:
    """The attempt in which the run is driven now. Raises RunError if it is not, or belongs to somebody else."""
    if not directory.is_live():
        raise RunError(f"nobody runs {directory.path} at this moment")
    owner = directory.path.stat().st_uid
    if os.geteuid() not in (owner, 0):
        raise RunError(f"{directory.path} belongs to {user_name(owner)}: only they, and root, can tell it what to do")
    with RunReader(directory) as reader:
        return attempt_in(reader.info(), before=0)


def take(directory: RunDirectory, attempt: int) -> list[Request | LeaveRun]:
    """Take the requests of the run's owner or root to this attempt since the last call, oldest first."""
    found = []
    for path in _files(directory):
        asked = _read(path)
        try:
            Disk().remove(path)
        except OSError:  # what cannot be removed would be done again and again
            continue
        if asked is not None and asked.attempt == attempt:
            found.append(asked.request)
    return found


def forget_requests(directory: RunDirectory) -> None:
    """Remove what was asked: the attempt that it is of is over. What cannot be removed asks no later attempt."""
    for path in _files(directory):
        with suppress(OSError):
            Disk().remove(path)


def _files(directory: RunDirectory) -> list[Path]:
    try:
        with os.scandir(directory.path) as entries:
            names = [one.name for one in entries]
    except OSError:
        return []
    return [directory.path / name for name in sorted(names) if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]


def _read(path: Path) -> _Asked | None:
    try:
        require_private(path)
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=_Asked)
    except (OSError, ValueError, RunError, msgspec.MsgspecError):
        return None
