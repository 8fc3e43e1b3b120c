"""The address at which a run meets: given to its first workers, and kept in its directory for later ones."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from volary.errors import RunError
from volary.run.disk import Disk, open_regular, replace_file

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Meeting:
    """The address at which workers of one attempt meet the run's server. attempt_id: what the server proves to be."""

    host: str
    port: int
    attempt: int
    attempt_id: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def announce(directory: RunDirectory, meeting: Meeting) -> None:
    """Let those who may read the run's key find its server. Raises RunError if that cannot be written."""
    for path in _announcements(directory):
        try:
            replace_file(Disk(), path, msgspec.json.encode(asdict(meeting)), mode=0o600)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror}") from None


def is_seen(directory: RunDirectory, attempt_id: str) -> bool:
    """Whether this machine sees the very directory of a run, and its checkpoints, and no copy of an earlier day."""
    meetings = [_read(path) for path in _announcements(directory)]
    return all(meeting is not None and meeting.attempt_id == attempt_id for meeting in meetings)


def forget(directory: RunDirectory) -> None:
    """Forget the address: the run's server has ended. Where that cannot be removed nobody proves to be that server."""
    for path in _announcements(directory):
        with suppress(OSError):
            Disk().remove(path)


def found(directory: RunDirectory) -> Meeting:
    """Find where a live run meets. Raises RunError if nobody runs it."""
    if not directory.is_live():
        raise RunError(f"nobody runs {directory.path} at this moment; resume it: volary resume {directory.argument}")
    meeting = announced(directory)
    if meeting is None:
        raise RunError(f"{directory.meeting}: cannot be read, the run may be starting or ending")
    return meeting


def announced(directory: RunDirectory) -> Meeting | None:
    """Read in the run's directory where it meets, or met; None if that cannot be read."""
    return _read(directory.meeting)


def _announcements(directory: RunDirectory) -> list[Path]:
    """One in each folder that is to be seen: a link to checkpoints elsewhere may lead nowhere on other machines."""
    elsewhere = directory.checkpoints.is_symlink()
    return [directory.meeting, *([directory.checkpoints / directory.meeting.name] if elsewhere else [])]


def _read(path: Path) -> Meeting | None:
    try:
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=Meeting)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
