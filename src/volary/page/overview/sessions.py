"""The session files that runs can be started from: those in the folder that the page was started in, and one below."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from volary.errors import BadInput, SettingError
from volary.run.directory import RunDirectory, is_run
from volary.session.spec import Session

MOST = 200
LARGEST_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,79}")
_SECTION = re.compile(r"^(network|data):", re.MULTILINE)


class SessionFiles:
    """The session files by their paths from `home`. Only listed files can be asked for."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()

    def names(self) -> list[str]:
        """The names of all session files of the folder."""
        return [path.relative_to(self.home).as_posix() for path in self._found()]

    def first(self, runs: Iterable[RunDirectory]) -> str:
        """The one to begin with: that of the newest run that was started from one, or else the first that is valid.

        runs: the newest first. Empty if no file is valid.
        """
        names = self.names()
        used = (name for run in runs for name in self._named_by(run) if name in names)
        return next((name for name in (*islice(used, 1), *names) if self._is_valid(name)), "")

    def _named_by(self, run: RunDirectory) -> list[str]:
        """The words of the command that made the run, as paths from `home`."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            about = json.loads(run.environment.read_text())
            paths = (Path(about["folder"], word) for word in about["command"])
            return [path.relative_to(self.home).as_posix() for path in paths if path.is_relative_to(self.home)]
        return []

    def _is_valid(self, name: str) -> bool:
        try:
            Session.read(self.home / name)
        except SettingError:
            return False
        return True

    def path(self, name: str) -> Path:
        """The file of this name. Raises BadInput if there is none."""
        if name not in self.names():
            raise BadInput(f"no session file {reprlib.repr(name)} in {self.home}")
        return self.home / name

    def written(self, name: str, text: str) -> tuple[Path, bool]:
        """A file in `home` with this text, called `name` or that with a number, and whether it is new.

        Nothing is overwritten. Raises BadInput for a name that no file should have.
        """
        if not _NAME.fullmatch(name):
            raise BadInput(f"{reprlib.repr(name)} is no name of a session; accepted: letters, digits, - and _")
        for number in range(1, MOST):
            path = self.home / (f"{name}.yaml" if number == 1 else f"{name}-{number}.yaml")
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                if _text_of(path) == text:
                    return path, False
            except OSError as error:
                raise BadInput(f"{path}: cannot be written ({error.strerror})") from None
            else:
                return path, True
        raise BadInput(f"{name}.yaml is there in {MOST} versions; accepted: another name")

    def _found(self) -> Iterator[Path]:
        candidates = [
            path
            for folder in (self.home, *self._folders())
            for path in sorted([*folder.glob("[!.]*.yaml"), *folder.glob("[!.]*.yml")])
        ]
        found = 0
        for path in candidates:
            if found < MOST and _is_session(path):
                found += 1
                yield path

    def _folders(self) -> list[Path]:
        with suppress(OSError):
            inside = sorted(path for path in self.home.glob("[!.]*") if path.is_dir() and not path.is_symlink())
            return [path for path in inside if not is_run(path)][:MOST]
        return []


def _text_of(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    return None


def _is_session(path: Path) -> bool:
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            return {"network", "data"} <= set(_SECTION.findall(path.read_text(encoding="utf-8")))
    return False
