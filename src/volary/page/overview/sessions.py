"""The session files that runs can be started from: those in the folder that the page was started in, and one below."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from volary.errors import BadInput
from volary.run.directory import is_run

MOST = 200
LARGEST_BYTES = 64 * 1024
_SECTION = re.compile(r"^(network|data):", re.MULTILINE)


class SessionFiles:
    """By their paths from `home`. Nothing but what is listed can be asked for."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()

    def names(self) -> list[str]:
        """The names of all session files of the folder."""
        return [path.relative_to(self.home).as_posix() for path in self._found()]

    def path(self, name: str) -> Path:
        """The file of this name. Raises BadInput if there is none."""
        if name not in self.names():
            raise BadInput(f"no session file {name!r} in {self.home}")
        return self.home / name

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


def _is_session(path: Path) -> bool:
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            return {"network", "data"} <= set(_SECTION.findall(path.read_text(encoding="utf-8")))
    return False
