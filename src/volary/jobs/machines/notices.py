"""The folder in which the runners of several users say what they have and want, each in a file that it alone can write.

Nothing in it is trusted further than its owner: a file counts for the user who owns it, and processes as far as they
are his. Who lies there gets more of the cores, and no more than that.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from volary.errors import VolaryError
from volary.jobs.machines.shares import Notice
from volary.run.disk import open_regular

WAIT_S = 2.0  # for another runner's look; a user who keeps the lock longer does not hold up the others
TRY_S = 0.05
MOST_BYTES = 1 << 20  # of a file


class NoticeFolder:
    """The folder at `path`, made for all users if it is not there. Raises VolaryError if others could change a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with suppress(FileExistsError):
                path.mkdir()
                path.chmod(0o1777)
            mode = path.lstat().st_mode
        except OSError as error:
            raise VolaryError(f"share_folder: {path}: {error.strerror}") from None
        if not stat.S_ISDIR(mode) or (mode & 0o022 and not mode & stat.S_ISVTX):
            raise VolaryError(
                f"share_folder: {path} is no folder where nobody can replace a file of others; accepted: mode 1777"
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other runner looks meanwhile, so that none takes the same cores; but one that looks for over `WAIT_S`."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise VolaryError(f"share_folder: {self._path}: {error.strerror}") from None
        try:
            until = time.monotonic() + WAIT_S
            while time.monotonic() < until:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(TRY_S)
            yield
        finally:
            os.close(descriptor)

    def mine(self, user: int) -> Notice | None:
        """The notice of this user; None if there is none."""
        return self._read(self._path / f"{user}.json")

    def others(self, user: int, boot: str) -> list[Notice]:
        """Others' notices of this start of the machine: what still runs, and what users with a runner want."""
        found = []
        for file in sorted(self._path.glob("*.json")):
            notice = self._read(file)
            if notice is None or notice.user == user or notice.boot != boot:
                continue
            running = tuple(one for one in notice.running if _is_of(one.pid, notice.user))
            wants = notice.wants if _is_of(notice.pid, notice.user) else None
            found.append(msgspec.structs.replace(notice, running=running, wants=wants))
        return found

    def stamp(self) -> int:
        """Another number once somebody has said something new; 0 if the folder has gone."""
        with suppress(OSError):
            return self._path.stat().st_mtime_ns
        return 0

    def say(self, notice: Notice) -> None:
        """Replace this user's notice. Raises VolaryError."""
        if notice == self.mine(notice.user):
            return
        try:
            descriptor, draft = tempfile.mkstemp(dir=self._path)  # by a name of its own: others may write here, too
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(msgspec.json.encode(notice))
            Path(draft).replace(self._path / f"{notice.user}.json")
        except OSError as error:
            raise VolaryError(f"share_folder: {self._path}: cannot be written: {error.strerror}") from None

    def _read(self, file: Path) -> Notice | None:
        """The notice in a file, which is its owner's, or does not count."""
        try:
            with open_regular(file) as opened:
                owner = os.fstat(opened.fileno()).st_uid
                notice = msgspec.json.decode(opened.read(MOST_BYTES), type=Notice)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        return notice if file.name == f"{owner}.json" and notice.user == owner else None


def _is_of(pid: int, user: int) -> bool:
    """Whether there is such a process, and it is this user's."""
    with suppress(OSError):
        return pid > 0 and Path(f"/proc/{pid}").stat().st_uid == user
    return False
