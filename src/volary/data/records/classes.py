"""Records in class folders, listed from a folder or a tar."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.archive import Archive
from volary.data.formats.class_folders import part_of
from volary.data.records.files import Files
from volary.data.records.members import TarMembers
from volary.data.records.records import Records
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.samples import Split
    from volary.data.storage.place import Place
    from volary.storage.remote_path import RemotePath


@dataclass(frozen=True, eq=False)
class InClasses:
    """Records by class and name. folders: the classes' names, sorted. labels (n,) int64: the folder of each record."""

    records: Records
    folders: list[str]
    labels: NDArray[np.int64]

    def numbered_as(self, training: InClasses, path: Place) -> NDArray[np.int64]:
        """The labels, by the number that each class has in the training part, which is at `path`.

        Raises DataError if it lacks a class.
        """
        numbers = {folder: number for number, folder in enumerate(training.folders)}
        for label, folder in enumerate(self.folders):
            if folder not in numbers:
                first = self.records.name(int(np.argmax(self.labels == label)))
                raise DataError(f"{first}: class {folder!r} is not in {path}")
        return np.array([numbers[folder] for folder in self.folders], dtype=np.int64)[self.labels]


def list_split(
    folder: Place, parts: Mapping[Split, str], split: Split, suffixes: frozenset[str], accepted: str
) -> tuple[Records, NDArray[np.int64], int]:
    """The records of a split, their classes (n,) as the training part numbers them, and how many classes that has.

    parts: by split, its name in `folder`. Raises DataError if a part is empty, or the training part lacks a class.
    """
    path = part_of(folder, parts["train"])
    training = list_classes(path, suffixes, accepted)
    listed = training if split == "train" else list_classes(part_of(folder, parts[split]), suffixes, accepted)
    return listed.records, listed.numbered_as(training, path), len(training.folders)


def list_classes(path: Place, suffixes: frozenset[str], accepted: str) -> InClasses:
    """The files with these endings in the class folders of a folder or a tar. Raises DataError if there are none."""
    if not path.is_dir():
        records, folders = _of_archive(path, suffixes)
    elif isinstance(path, Path):
        records, folders = _of_folder(path, suffixes)
    else:
        records, folders = _of_store(path, suffixes)
    if not folders:
        raise DataError(f"{path}: empty: no such file found; accepted: {accepted}")
    names = sorted(set(folders))
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.fromiter(map(numbers.__getitem__, folders), dtype=np.int64, count=len(folders))
    return InClasses(records, names, labels)


def _of_folder(path: Path, suffixes: frozenset[str]) -> tuple[Records, list[str]]:
    names: list[str] = []
    folders: list[str] = []
    for folder in sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name[0] != "."):
        with os.scandir(path / folder) as entries:  # says which are files without asking for each
            files = sorted(entry.name for entry in entries if _wanted(entry.name, suffixes) and entry.is_file())
        names += [f"{folder}/{name}" for name in files]
        folders += [folder] * len(files)
    return Files(path, names), folders


def _of_store(path: RemotePath, suffixes: frozenset[str]) -> tuple[Records, list[str]]:
    from volary.data.records.objects import Objects

    found = path.files()
    parts = sorted(PurePosixPath(name).parts for name in found)
    wanted = [(folder, name) for folder, *_, name in parts if _wanted(name, suffixes) and folder[0] != "."]
    wanted = [(folder, name) for folder, name in wanted if f"{folder}/{name}" in found]
    names = [f"{folder}/{name}" for folder, name in wanted]
    return Objects(path, names, [found[name] for name in names]), [folder for folder, _ in wanted]


def _of_archive(path: Place, suffixes: frozenset[str]) -> tuple[Records, list[str]]:
    archive = Archive.open(path)
    members = [m for m in archive.members if len(m.name.parts) > 1 and _wanted(m.name.name, suffixes)]
    members.sort(key=lambda member: (member.name.parts[-2], str(member.name)))
    return TarMembers([archive], [(0, member) for member in members]), [member.name.parts[-2] for member in members]


def _wanted(name: str, suffixes: frozenset[str]) -> bool:
    # not a path: making one takes longer than all else of listing a file
    return name[0] != "." and os.path.splitext(name)[1].lower() in suffixes  # noqa: PTH122
