"""Parts of a data set: folders of class folders, or tars of them. Looks at them without reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.formats.archive import SUFFIXES, check_archive
from volary.data.formats.files import existing_folder
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place


def part_of(folder: Place, name: str) -> Place:
    """Where a part is: the name as it stands, else with the ending of a tar. Raises DataError if there is neither."""
    folder = existing_folder(folder, "a folder with a training and a test part")
    for candidate in (folder / name, *(folder / f"{name}{suffix}" for suffix in SUFFIXES)):
        if candidate.exists():
            return candidate
    raise DataError(f"{folder}: has no {name}; accepted: a folder {name}, or {name}.tar, {name}.tar.gz, {name}.tgz")


def check_part(path: Place) -> None:
    """Raise DataError unless a folder has a class folder in it, or a tar starts as one."""
    if not path.is_dir():
        check_archive(path)
    elif not any(entry.is_dir() for entry in existing_folder(path, "one folder per class").iterdir()):
        raise DataError(f"{path}: has no folder in it; accepted: one folder per class")
