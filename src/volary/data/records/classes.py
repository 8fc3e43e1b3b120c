"""Records in class folders, listed from a folder or a tar."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.archive import Archive, ArchiveMember
from volary.data.formats.class_folders import candidates, part_of
from volary.data.records.files import Files
from volary.data.records.members import TarMembers
from volary.data.records.records import Records
from volary.data.records.unread import Unread
from volary.data.remarks import listed as names_listed
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.samples import Split
    from volary.data.storage.place import Place
    from volary.storage.remote_path import RemotePath

_HIDDEN = "whose name begins with a dot"
_ENDING = "with another ending"
_OUTSIDE = "outside of class folders"
_INSIDE = "deeper inside of class folders"
_NO_CLASS = "without files to read: no class"
_NO_FILE = "of another kind, as a link to nothing"


@dataclass(frozen=True, eq=False)
class InClasses:
    """Records by class and name. folders: the classes' names, sorted. labels (n,) int64: the folder of each record.

    remarks: on what is there beside them.
    """

    records: Records
    folders: list[str]
    labels: NDArray[np.int64]
    remarks: tuple[str, ...]

    def numbered_as(self, training: InClasses, path: Place) -> NDArray[np.int64]:
        """The labels, by the number that each class has in the training part, which is at `path`.

        Raises DataError if it lacks a class.
        """
        numbers = {folder: number for number, folder in enumerate(training.folders)}
        for label, folder in enumerate(self.folders):
            if folder not in numbers:
                first = self.records.name(int(np.argmax(self.labels == label)))
                known = names_listed(training.folders)
                raise DataError(f"{first}: class {folder!r} is not in {path}; accepted: {known}")
        return np.array([numbers[folder] for folder in self.folders], dtype=np.int64)[self.labels]


@dataclass(frozen=True, eq=False)
class SplitRecords:
    """A split: its records, their classes (n,) as the training part numbers them, and what that calls its classes."""

    records: Records
    targets: NDArray[np.int64]
    class_names: tuple[str, ...]
    remarks: tuple[str, ...]


def list_split(
    folder: Place, parts: Mapping[Split, str], split: Split, suffixes: frozenset[str], accepted: str
) -> SplitRecords:
    """List the records of a split. parts: by split, its name in `folder`.

    Raises DataError if a part is empty or cannot be listed, or the training part lacks a class.
    """
    path = part_of(folder, parts["train"])
    training = list_classes(path, suffixes, accepted)
    listed = training if split == "train" else list_classes(part_of(folder, parts[split]), suffixes, accepted)
    taken, *others = candidates(folder, parts[split])
    remarks = [f"{other}: not read, as {taken.name} is there, too" for other in others]
    targets = listed.numbered_as(training, path)
    return SplitRecords(listed.records, targets, tuple(training.folders), (*listed.remarks, *remarks))


def list_classes(path: Place, suffixes: frozenset[str], accepted: str) -> InClasses:
    """The files with these endings in the class folders of a folder or a tar. Raises DataError if there are none."""
    unread = Unread()
    if not path.is_dir():
        records, folders = _of_archive(path, suffixes, unread)
    elif isinstance(path, Path):
        records, folders = _of_folder(path, suffixes, unread)
    else:
        records, folders = _of_store(path, suffixes, unread)
    if not folders:
        raise DataError(f"{path}: empty: no such file found; accepted: {accepted}")
    names = sorted(set(folders))
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.fromiter(map(numbers.__getitem__, folders), dtype=np.int64, count=len(folders))
    return InClasses(records, names, labels, unread.remarks(path))


def _of_folder(path: Path, suffixes: frozenset[str], unread: Unread) -> tuple[Records, list[str]]:
    names: list[str] = []
    folders: list[str] = []
    for entry in _scanned(path):
        folder = entry.name
        if folder[0] == "." or not entry.is_dir():
            what = "folder" if entry.is_dir() else "file"
            unread.add(folder, what, _HIDDEN if folder[0] == "." else _OUTSIDE)
            continue
        found = _scanned(path / folder)
        files = [one.name for one in found if _wanted(one.name, suffixes) and one.is_file()]
        for one in found if len(files) < len(found) else ():
            if not (_wanted(one.name, suffixes) and one.is_file()):
                unread.add(f"{folder}/{one.name}", *_why(one, suffixes))
        if not files:
            unread.add(folder, "folder", _NO_CLASS)
        names += [f"{folder}/{name}" for name in files]
        folders += [folder] * len(files)
    return Files(path, names), folders


def _scanned(path: Path) -> list[os.DirEntry[str]]:
    """List what is in a folder, by name, and which are files, without asking for each."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror}); accepted: a folder of files") from problem


def _why(entry: os.DirEntry[str], suffixes: frozenset[str]) -> tuple[str, str]:
    what = "folder" if entry.is_dir() else "file"
    if entry.name[0] == ".":
        return what, _HIDDEN
    if what == "folder":
        return what, _INSIDE
    return "file", _NO_FILE if _wanted(entry.name, suffixes) else _ENDING


def _of_store(path: RemotePath, suffixes: frozenset[str], unread: Unread) -> tuple[Records, list[str]]:
    from volary.data.records.objects import Objects

    found = path.files()
    wanted = []
    for name, parts in sorted(((name, PurePosixPath(name).parts) for name in found), key=lambda one: one[1]):
        if reason := _unwanted(parts, suffixes) or (_INSIDE if len(parts) > 2 else ""):
            unread.add(name, "file", reason)
        else:
            wanted.append(name)
    folders = [name.partition("/")[0] for name in wanted]
    return Objects(path, wanted, [found[name] for name in wanted]), folders


def _of_archive(path: Place, suffixes: frozenset[str], unread: Unread) -> tuple[Records, list[str]]:
    archive = Archive.open(path)
    members: list[ArchiveMember] = []
    for member in archive.members:
        if reason := _unwanted(member.name.parts, suffixes):
            unread.add(str(member.name), "member", reason)
        else:
            members.append(member)
    members.sort(key=lambda member: (member.name.parts[-2], str(member.name)))
    _refuse_unclear(path, members)
    classes = {member.name.parent for member in members}
    depths = {len(folder.parts) for folder in classes}
    for folder in archive.folders:
        if len(folder.parts) in depths and folder not in classes and not _hidden(folder.parts):
            unread.add(str(folder), "folder", _NO_CLASS)
    return TarMembers([archive], [(0, member) for member in members]), [member.name.parts[-2] for member in members]


def _refuse_unclear(path: Place, members: list[ArchiveMember]) -> None:
    """Raise DataError for a file that is there twice, or if folders of several depths hold files: which are classes?"""
    twice = next((one for one, other in pairwise(members) if one.name == other.name), None)
    if twice is not None:
        raise DataError(f"{path}: has {str(twice.name)!r} twice; accepted: each file once")
    by_depth = {len(member.name.parts): member.name for member in members}
    if len(by_depth) > 1:
        high, low = by_depth[min(by_depth)], by_depth[max(by_depth)]
        raise DataError(
            f"{path}: has {str(high)!r} and {str(low)!r}, so that it is unclear which folders are classes; "
            "accepted: all files in class folders of one depth"
        )


def _unwanted(parts: tuple[str, ...], suffixes: frozenset[str]) -> str:
    """Why a file with this path is not read; empty if it is."""
    if _hidden(parts):
        return _HIDDEN
    if not _wanted(parts[-1], suffixes):
        return _ENDING
    return _OUTSIDE if len(parts) < 2 else ""


def _hidden(parts: Iterable[str]) -> bool:
    return any(part[0] == "." for part in parts)


def _wanted(name: str, suffixes: frozenset[str]) -> bool:
    # not a path: making one takes longer than all else of listing a file
    return name[0] != "." and os.path.splitext(name)[1].lower() in suffixes  # noqa: PTH122
