"""The run's folder while it trains: what somebody removes of it, and a resumed run needs, is written anew."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, replace_file
from volary.run.lock import RunLock


class RunFolder:
    """Holds the files of the run open from its start on: what is removed can still be read.

    The database is written anew when the run ends, by the journal, which has it open.
    """

    def __init__(self, directory: RunDirectory, lock: RunLock, journal: Journal) -> None:
        self._directory, self._lock, self._journal = directory, lock, journal
        self._links = {path: path.readlink() for path in directory.folders if path.is_symlink()}
        self._files: dict[Path, BinaryIO] = {}
        self._open = ExitStack()
        self._reported: set[str] = set()
        self._away = False

    def __enter__(self) -> RunFolder:
        self._files = {path: self._open.enter_context(path.open("rb")) for path in self._directory.written_once()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def look(self) -> None:
        """Write anew what is missing, and say so once of each. Raises RunError if another driver has the run now."""
        path = self._directory.path
        if self._away != (away := not path.is_dir()):
            self._away = away
            self._warn(
                f"{path} has gone: somebody moved or removed it; move it back: no checkpoint can be written until then"
                if away
                else f"{path} is there again: checkpoints are written again"
            )
        if away:
            return
        try:
            missing = self._put_back()
        except FileNotFoundError:  # whoever removes it is still at it
            return
        except OSError as error:
            if self._news({error.strerror or ""}):
                self._warn(f"{path}: what somebody removed cannot be written anew: {error}")
            return
        if removed := self._news(missing):
            self._warn(
                f"{path}: somebody removed {', '.join(sorted(removed))} while the run trains; what it needs to be "
                "resumed is written anew, the database at its end"
            )

    def _news(self, about: set[str]) -> set[str]:
        """Those that no warning has named so far."""
        news = about - self._reported
        self._reported |= news
        return news

    def _put_back(self) -> set[str]:
        """The names of what was missing. Raises OSError."""
        missing = set()
        for folder in self._directory.folders:
            if not os.path.lexists(folder):
                missing.add(f"{folder.name}/")
                if link := self._links.get(folder):
                    folder.symlink_to(link)
                else:
                    folder.mkdir(exist_ok=True)
        for path, file in self._files.items():
            if not path.exists():
                missing.add(path.name)
                file.seek(0)
                replace_file(Disk(), path, file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        if self._lock.put_back():
            missing.add("lock")
        if not self._directory.database.exists():
            missing.add(self._directory.database.name)
        return missing

    def _warn(self, text: str) -> None:
        self._journal.event("warning", text=text)
