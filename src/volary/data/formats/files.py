"""Questions about a file or folder that each source asks before it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place


def existing_file(path: Place, accepted: str) -> Place:
    """`path`, if it is a file that can be read and has something in it; `accepted` ends the sentence otherwise.

    Raises DataError if it is not.
    """
    try:
        if not path.exists():
            raise DataError(f"{path}: there is no such file; accepted: {accepted}")
        if not path.is_file():
            raise DataError(f"{path}: not a file; accepted: {accepted}")
        with path.open("rb") as file:
            something = file.read(1)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem}); accepted: {accepted}") from problem
    if not something:
        raise DataError(f"{path}: empty (0 bytes); accepted: {accepted}")
    return path


def matching(folder: Place, pattern: str) -> list[Place]:
    """List what is in the folder and has such a name, by name. Raises DataError if it cannot be listed."""
    return sorted(existing_folder(folder, "a folder of files").glob(pattern), key=lambda one: one.name)


def existing_folder(path: Place, accepted: str) -> Place:
    """`path`, if it is a folder that can be listed; `accepted` ends the sentence otherwise.

    Raises DataError if it is not.
    """
    try:
        if not path.exists():
            raise DataError(f"{path}: there is no such folder; accepted: {accepted}")
        if not path.is_dir():
            raise DataError(f"{path}: not a folder; accepted: {accepted}")
        if isinstance(path, Path):
            os.scandir(path).close()  # if it may not be listed, its files would seem to be missing
    except OSError as problem:
        raise DataError(f"{path}: cannot be reached ({problem.strerror or problem}); accepted: {accepted}") from problem
    return path
