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
        self._folders: dict[Path, int] = {}  # descriptors: no new folder is mistaken for one that is held open
        self._open = ExitStack()
        self._missing: set[str] = set()  # so far
        self._reported: set[str] = set()
        self._away = False

    def __enter__(self) -> RunFolder:
        self._files = {path: self._open.enter_context(path.open("rb")) for path in self._directory.written_once()}
        self._hold_folders()
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
            self._put_back()
        except FileNotFoundError:  # whoever removes it is still at it
            return
        except OSError as error:
            if self._news({error.strerror or ""}):
                self._warn(f"{path}: what somebody removed cannot be written anew: {error}")
            return
        if removed := self._news(self._missing):
            self._warn(
                f"{path}: somebody removed {', '.join(sorted(removed))} while the run trains; what it needs to be "
                "resumed is written anew, the database at its end"
            )

    def _news(self, about: set[str]) -> set[str]:
        """The troubles that no warning has named so far."""
        news = about - self._reported
        self._reported |= news
        return news

    def _put_back(self) -> None:
        """Write anew what is missing, and note its names. Raises OSError amid that."""
        missing = self._missing
        for folder in self._directory.folders:
            if not os.path.lexists(folder):
                missing.add(f"{folder.name}/")
                if link := self._links.get(folder):
                    folder.symlink_to(link)
                else:
                    folder.mkdir(exist_ok=True)
            elif self._is_another(folder):  # whoever writes there has made it anew
                missing.add(f"{folder.name}/")
        self._hold_folders()
        for path, file in self._files.items():
            if not path.exists():
                missing.add(path.name)
                file.seek(0)
                replace_file(Disk(), path, file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        if self._lock.put_back():
            missing.add("lock")
        if not self._directory.database.exists():
            missing.add(self._directory.database.name)

    def _is_another(self, folder: Path) -> bool:
        held = self._folders.get(folder)
        return held is not None and folder.exists() and not os.path.samestat(os.fstat(held), folder.stat())

    def _hold_folders(self) -> None:
        for folder in self._directory.folders:
            if folder.exists() and (folder not in self._folders or self._is_another(folder)):
                self._folders[folder] = held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                self._open.callback(os.close, held)

    def _warn(self, text: str) -> None:
        self._journal.event("warning", text=text)
