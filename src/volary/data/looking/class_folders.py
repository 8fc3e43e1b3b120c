"""Class folders of images or sounds: in a folder of their own, or in a training and a test part of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.records.classes import InClasses, list_classes
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.records.records import Records

TRAINING, VALIDATION = ("train", "training"), ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class ClassFolders:
    """kind: images, or sounds. parts: names of the folders of the parts; one alone, `.`, where class folders are in the
    folder itself.
    """

    kind: str
    parts: tuple[str, ...]
    training: InClasses
    counts: dict[str, int]
    remarks: list[str] = field(default_factory=list)

    @property
    def records(self) -> Records:
        """The files of the training part."""
        return self.training.records

    @property
    def classes(self) -> dict[str, int]:
        """Files of the training part by class, in the order of the classes' numbers."""
        counted = Counter(self.training.labels.tolist())
        return {name: counted[number] for number, name in enumerate(self.training.folders)}

    def class_of(self, number: int) -> str:
        """The class of a file of the training part."""
        return self.training.folders[int(self.training.labels[number])]

    def spread(self, count: int) -> list[int]:
        """Numbers of so many files, or of all if there are fewer: the first of each class, then the second, ..."""
        turn, seen = list[tuple[int, int]](), Counter[int]()
        for number, label in enumerate(self.training.labels.tolist()):
            if seen[label] < count:
                turn.append((seen[label], number))
            seen[label] += 1
        return sorted(number for _, number in sorted(turn)[:count])


def class_folders(path: Path) -> ClassFolders | None:
    """The class folders at `path`; None if it is no folder, or has no folder with an image or a sound in it.

    Raises DataError if such files are in it directly, and in no class folder.
    """
    from volary.data.decoding import images, sound

    if not path.is_dir():
        return None
    of_images = _of("images", path, images.SUFFIXES, images.ACCEPTED)
    return of_images or _of("sounds", path, sound.SUFFIXES, sound.ACCEPTED)


def _of(kind: str, path: Path, suffixes: frozenset[str], accepted: str) -> ClassFolders | None:
    inside = sorted(one.name for one in path.iterdir() if one.is_dir() and one.name[0] != ".")
    parts = [next((name for name in known if name in inside), None) for known in (TRAINING, VALIDATION)]
    first = None if parts[0] is None else path / parts[0]
    if first is not None and any(one.is_dir() and _has_file(one, suffixes) for one in first.iterdir()):
        listed = {name: list_classes(path / name, suffixes, accepted) for name in parts if name is not None}
        training = listed[first.name]
        words = dict(zip(listed, ("train", "test"), strict=False))
        counts = {words[name]: len(one.records) for name, one in listed.items()}
        remarks = [remark for one in listed.values() for remark in one.remarks]
        return ClassFolders(kind, tuple(listed), training, counts, remarks)
    if any(_has_file(path / name, suffixes) for name in inside):
        training = list_classes(path, suffixes, accepted)
        return ClassFolders(kind, (".",), training, {"train": len(training.records)}, list(training.remarks))
    if _has_file(path, suffixes):
        raise DataError(f"{path}: has {kind}, but no class folders; accepted: {accepted}, a folder for each class")
    return None


def _has_file(folder: Path, suffixes: frozenset[str]) -> bool:
    return any(one.suffix.lower() in suffixes and one.name[0] != "." for one in folder.iterdir())
