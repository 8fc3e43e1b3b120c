"""The folders whose data the page may look at: the one that it was started in, and those that were named."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from volary.errors import BadInput

MOST = 200  # of what is offered
DEEPEST = 3  # folders in a data set: its part, its class, the file
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather")


class DataPlaces:
    """Files and folders inside of `roots`, links followed. Nothing hidden is shown, nor can be asked for."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(dict.fromkeys(root.resolve() for root in roots))

    def path(self, text: str) -> Path:
        """The data at this path, from the first root on if it is relative.

        Raises BadInput if it is not there, or is outside of the roots, or leads out of them in a link.
        """
        path = self._inside(text)
        if not path.exists():
            raise BadInput(f"{_short(text)}: there is no such file or folder; accepted: data in {self._named}")
        for link in _links(path, DEEPEST):
            if not self._holds(link.resolve()):
                raise BadInput(
                    f"{link}: leads out of {self._named}; accepted: `volary ui --data` with that folder, too"
                )
        return path

    def offered(self, text: str) -> list[dict[str, Any]]:
        """Folders and data that begin so; the roots if nothing was typed. Raises BadInput for what is outside."""
        if not text:
            return [{"path": str(root), "folder": True} for root in self.roots]
        folder, slash, start = text.rpartition("/")
        above = self._inside(folder + slash)
        found = list[dict[str, Any]]()
        with suppress(OSError), os.scandir(above) as entries:
            for one in sorted(entries, key=lambda entry: entry.name):
                if one.name[0] == "." or not one.name.startswith(start) or not self._holds(Path(one.path).resolve()):
                    continue
                if one.is_dir() or Path(one.name).suffix.lower() in (*TABLES, ".npz"):
                    found.append({"path": one.path, "folder": one.is_dir()})
        return found[:MOST]

    def _inside(self, text: str) -> Path:
        try:
            path = (self.roots[0] / text).resolve()
            path.exists()
        except (OSError, ValueError, RuntimeError):  # too long; a zero byte; links in a circle
            raise BadInput(f"{_short(text)}: is no path; accepted: data in {self._named}") from None
        if not self._holds(path):
            raise BadInput(
                f"{_short(text)}: is outside of {self._named}; accepted: data in there, or `volary ui --data` with "
                "its folder, too"
            )
        return path

    def _holds(self, path: Path) -> bool:
        """Whether a path without links is in a root, and nothing on the way there is hidden."""
        below = (path.relative_to(root).parts for root in self.roots if path.is_relative_to(root))
        return any(not any(part.startswith(".") for part in parts) for parts in below)

    @property
    def _named(self) -> str:
        return " and ".join(map(str, self.roots))


def _links(path: Path, deep: int) -> Iterator[Path]:
    """The links in a folder, so deep."""
    with suppress(OSError), os.scandir(path) as entries:
        for one in entries:
            if one.is_symlink():
                yield Path(one.path)
            elif deep > 1 and one.is_dir(follow_symlinks=False):
                yield from _links(Path(one.path), deep - 1)


def _short(text: str) -> str:
    return reprlib.repr(text)
