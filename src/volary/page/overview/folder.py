"""The runs below a folder, each under its path from there."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from volary.errors import RunError
from volary.run.directory import RunDirectory, is_run

DEEPEST = 4  # folders within folders: a sweep's runs are found, a data set beside them is not searched


class Folder:
    """The runs below `path`, or the one run there. A run is known by its path from here: `lenet-digits-1`, `sweep/3`.

    above: the folder that runs are in.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.above = self.path.parent if is_run(self.path) else self.path

    def runs(self) -> dict[str, RunDirectory]:
        """All runs by their names; what is hidden, linked or not ours to read is left out."""
        found = [self.path] if self.above != self.path else _runs_in(self.path, DEEPEST)
        return {path.relative_to(self.above).as_posix(): RunDirectory(path) for path in found}

    def run(self, name: str) -> RunDirectory:
        """The run of this name. Raises RunError if there is none: no other place of the machine can be asked for."""
        parts = name.split("/")
        path = self.above.joinpath(*parts)
        within = path == self.path if self.above != self.path else len(parts) <= DEEPEST
        with suppress(OSError):  # a name that the file system refuses
            if within and all(_is_plain(part) for part in parts) and path.resolve() == path and is_run(path):
                return RunDirectory(path)
        raise RunError(f"no run {reprlib.repr(name)} in {self.path.name}")

    def name_of(self, path: Path) -> str | None:
        """The name of the run at `path`; None if it is none of this folder's."""
        with suppress(ValueError, RunError):  # elsewhere; gone
            name = path.relative_to(self.above).as_posix()
            self.run(name)
            return name
        return None


def _runs_in(folder: Path, deep: int) -> Iterator[Path]:
    inside = []
    with suppress(OSError), os.scandir(folder) as entries:
        inside = sorted(one.path for one in entries if _is_plain(one.name) and one.is_dir(follow_symlinks=False))
    for path in map(Path, inside):
        if is_run(path):
            yield path
        elif deep > 1:
            yield from _runs_in(path, deep - 1)


def _is_plain(part: str) -> bool:
    """No way up, nothing hidden, no character that file systems refuse."""
    return bool(part) and not part.startswith(".") and not {"\0", "/"} & set(part)
