"""Image files by a list: a line is a path and a label, as Caffe's convert_imageset takes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_file
from volary.data.loading.image_settings import ImageSettings
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
    test: Location  # the list of the validation data, likewise
    root: Location | None = None  # where relative paths start; none: at the folder of the list

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train", "test"):
            if not getattr(self, name):
                raise SettingError(f"{name} is empty; accepted: {_ACCEPTED}")

    def check(self) -> None:
        """Look at the first lines, and whether the first files exist."""
        for split in (self.train, self.test):
            path = existing_file(located(split), _ACCEPTED)
            with path.open(encoding="utf-8", errors="surrogateescape") as file:
                name, _ = _entry(path, 1, file.readline())
            existing_file(self._root(path) / name, "an image file")

    def count(self, split: Split) -> int:
        """As many as the list has lines that are not empty."""
        with located(getattr(self, split)).open("rb") as file:
            return sum(bool(line.strip()) for line in file)

    def open(self, split: Split) -> Pipeline:
        import torch

        from volary.data.formats.labels import Labels
        from volary.data.records.files import Files
        from volary.data.records.objects import Objects

        training = self._entries("train")
        entries = training if split == "train" else self._entries("test")
        labels = Labels([label for _, label in training], str(self.train))
        path = located(getattr(self, split))
        targets = labels.numbered([label for _, label in entries], str(path))
        root, names = self._root(path), [name for name, _ in entries]
        records = Files(root, names) if isinstance(root, Path) else Objects(root, names)
        return self.decoded(records, torch.from_numpy(targets), labels.count, split)

    def _entries(self, split: Split) -> list[tuple[str, str]]:
        path = existing_file(located(getattr(self, split)), _ACCEPTED)
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            entries = [_entry(path, number, line) for number, line in enumerate(file, start=1) if line.strip()]
        if not entries:
            raise DataError(f"{path}: empty: no line has a path; accepted: {_ACCEPTED}")
        return entries

    def _root(self, path: Place) -> Place:
        return path.parent if self.root is None else located(self.root)


def _entry(path: Place, number: int, line: str) -> tuple[str, str]:
    parts = line.rstrip().rsplit(maxsplit=1)
    if len(parts) != 2:
        raise DataError(f"{path}:{number}: has no label: {line.strip()!r}; accepted: {_ACCEPTED}")
    return parts[0], parts[1]


SOURCE = ListFile
