"""MNIST and its family (Fashion-MNIST, KMNIST, EMNIST): images and labels as IDX files in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_folder, matching
from volary.data.formats.idx_file import IdxFile
from volary.data.remarks import not_read
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.memory import InMemory
    from volary.data.samples import Split
    from volary.data.storage.place import Place

_PREFIX: dict[Split, str] = {"train": "train", "test": "t10k"}


@dataclass(frozen=True, kw_only=True)
class Idx:
    """Grey images in memory as uint8, given as (1, height, width) float32: (value / 255 - mean) / std."""

    folder: Location  # holds train-images*, train-labels*, t10k-images*, t10k-labels*, each with or without .gz
    classes: int | None = None  # how many classes; none: the largest label of the training part + 1
    mean: float = 0.0  # taken off each pixel (0 to 1); MNIST's own is 0.1307
    std: float = 1.0  # divides each pixel after that; MNIST's own is 0.3081

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds train-images* and its three fellows")
        if self.classes is not None and not 1 <= self.classes <= 256:
            raise SettingError(f"classes is {self.classes}; accepted: 1 to 256")
        if not self.std > 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look at the four headers, the counts, and the lengths of the files. Raises DataError if they do not fit."""
        shapes = set()
        for split in parts:
            images, labels = self._files(split)
            images.check_length()
            labels.check_length()
            shapes.add(images.shape[1:])
        if len(shapes) > 1:
            raise DataError(f"{self.folder}: training and test images differ in size: {' and '.join(map(str, shapes))}")

    def count(self, split: Split) -> int:
        return self._files(split)[1].shape[0]

    def open(self, split: Split) -> InMemory:
        """Read both files. Raises DataError for a label that is not below `classes`."""
        from volary.data.memory import InMemory

        images, labels = self._files(split)
        targets = labels.read()
        classes = self._classes(targets if split == "train" else self._files("train")[1].read())
        if int(targets.max()) >= classes:
            row = int((targets >= classes).int().argmax())
            raise DataError(
                f"{labels.path}: sample {row} has the label {targets[row]}; accepted: 0 to {classes - 1} "
                f"({classes} classes)"
            )
        pixels = images.read().unsqueeze(1)
        scale, shift = 1 / (255 * self.std), -self.mean / self.std
        return InMemory(pixels, targets.long(), classes, scale, shift, remarks=self._remarks())

    def _remarks(self) -> tuple[str, ...]:
        """Remarks on what else is in the folder than the files of both parts."""
        folder = located(self.folder)
        starts = [f"{prefix}-{kind}*" for prefix in _PREFIX.values() for kind in ("images", "labels")]
        read = [path for start in starts for path in matching(folder, start)[:1]]
        return not_read(folder, "file", [path.name for path in matching(folder, "*") if path not in read])

    def _classes(self, training_labels: Tensor) -> int:
        return self.classes if self.classes is not None else int(training_labels.max()) + 1

    def _files(self, split: Split) -> tuple[IdxFile, IdxFile]:
        images = IdxFile.at(self._find(f"{_PREFIX[split]}-images"), rank=3)
        labels = IdxFile.at(self._find(f"{_PREFIX[split]}-labels"), rank=1)
        if images.shape[0] != labels.shape[0]:
            raise DataError(
                f"{images.path}: {images.shape[0]} images, but {labels.path.name} has {labels.shape[0]} labels; "
                "accepted: as many of one as of the other"
            )
        return images, labels

    def _find(self, start: str) -> Place:
        folder = existing_folder(located(self.folder), "a folder of IDX files")
        found = matching(folder, f"{start}*")  # "x" before "x.gz": unpacked is quicker to read
        if not found:
            raise DataError(f"{folder}: has no file {start}*; accepted: {start}-idx?-ubyte, with or without .gz")
        return found[0]


SOURCE = Idx
