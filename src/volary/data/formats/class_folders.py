"""Parts of a data set: folders of class folders, or tars of them. Looks at them without reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.formats.archive import SUFFIXES, check_archive
from volary.data.formats.files import existing_folder
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

PARTS = ("train", "val", "valid", "validation", "test")  # as folders of parts are mostly called, and no class


def part_of(folder: Place, name: str) -> Place:
    """Find a part: the first of `candidates`. Raises DataError if there is none."""
    folder = existing_folder(folder, "a folder with a training and a test part")
    if found := candidates(folder, name):
        return found[0]
    accepted = f"a folder {name}, or {name}.tar, {name}.tar.gz, {name}.tgz"
    if any(entry.is_dir() and entry.name not in PARTS for entry in folder.iterdir()):
        accepted += "; train: . and data.split if its own folders are the classes"
    raise DataError(f"{folder}: has no {name}; accepted: {accepted}")


def candidates(folder: Place, name: str) -> list[Place]:
    """All places with this name, as it is and with the endings of tars."""
    return [place for suffix in ("", *SUFFIXES) if (place := folder / f"{name}{suffix}").exists()]


def check_part(path: Place) -> None:
    """Raise DataError unless a folder has a class folder in it, or a tar starts as one."""
    if not path.is_dir():
        check_archive(path)
    elif not any(entry.is_dir() for entry in existing_folder(path, "one folder per class").iterdir()):
        raise DataError(f"{path}: has no folder in it; accepted: one folder per class")
