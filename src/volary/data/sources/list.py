"""Image files by a list: a line is a path and a label, as Caffe's convert_imageset takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from volary.data.formats.files import existing_file
from volary.data.formats.text_file import open_text
from volary.data.loading.image_settings import ImageSettings
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Split
    from volary.data.storage.place import Place

_ACCEPTED = "a text file with a path and a label on each line"


@dataclass(frozen=True, kw_only=True)
class ListFile(ImageSettings):
    """Images (channels, height, width) in float32, in the order of the lists."""

    train: Location  # the list of the training part: on each line a path, spaces, and a label (a number, or a name)
    test: Location | None = None  # the list of the validation data, likewise
    kind: Literal["class", "labels", "numbers"] = "class"  # one class, any of several labels, or numbers, on each line
    root: Location | None = None  # where relative paths start; none: at the folder of the list

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train", "test"):
            if getattr(self, name) == "":
                raise SettingError(f"{name} is empty; accepted: {_ACCEPTED}")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look at the first lines, and whether the first files exist."""
        for split in parts:
            path = located(getattr(self, split))
            existing_file(self._root(path) / next(self._entries(split)).name, "an image file")

    def count(self, split: Split) -> int:
        """The count of the list's lines that are not empty."""
        return sum(1 for _ in self._entries(split))

    def open(self, split: Split) -> Pipeline:
        """Read the lists. Raises DataError with the line of what is no label, or not what the training part has."""
        import torch

        from volary.data.formats.line_targets import PartLabels, targets_of
        from volary.data.records.files import Files
        from volary.data.records.objects import Objects

        training = list(self._entries("train"))
        path = located(getattr(self, split))
        entries = training if split == "train" else list(self._entries(split))
        known = PartLabels([entry.label for entry in training], str(self.train), _places(self.train, training))
        given = PartLabels([entry.label for entry in entries], str(path), _places(path, entries))
        found = targets_of(self.kind, known, given)
        root, names = self._root(path), [entry.name for entry in entries]
        records = Files(root, names) if isinstance(root, Path) else Objects(root, names)
        samples = self.decoded(records, torch.from_numpy(found.targets), found.classes, split)
        samples.class_names = found.names
        return samples

    def _entries(self, split: Split) -> Iterator[_Entry]:
        return _entries(located(getattr(self, split)), several=self.kind != "class")

    def _root(self, path: Place) -> Place:
        return path.parent if self.root is None else located(self.root)


class _Entry(NamedTuple):
    """A line of a list, and its number."""

    name: str
    label: str
    line: int


def _entries(path: Place, *, several: bool) -> Iterator[_Entry]:
    """The entries of lines that are not empty, of which there must be one. several: labels, after a path of one word.

    With a tab the path ends at the first one, and may have blanks.
    """
    empty = True
    with open_text(path, _ACCEPTED, errors="surrogateescape") as file:  # paths may be of any bytes
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            name, label = _first_word(line) if several else _last_word(line)
            if not label and not several:
                raise DataError(f"{path}:{number}: has no label: {line.strip()!r}; accepted: {_ACCEPTED}")
            yield _Entry(name, label, number)
            empty = False
    if empty:
        raise DataError(f"{path}: empty: no line has a path; accepted: {_ACCEPTED}")


def _first_word(line: str) -> tuple[str, str]:
    name, *rest = line.strip().split("\t" if "\t" in line.strip() else None, 1)
    return name, rest[0] if rest else ""


def _last_word(line: str) -> tuple[str, str]:
    *name, label = line.rsplit(maxsplit=1)
    return (name[0], label) if name else (label, "")


def _places(path: Location | Place, entries: list[_Entry]) -> Callable[[int], str]:
    return lambda row: f"{path}:{entries[row].line}"


SOURCE = ListFile
