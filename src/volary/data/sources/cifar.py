"""CIFAR-10 and CIFAR-100 in their binary version (Krizhevsky 2009): a label byte or two, and 3,072 bytes of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_folder, matching
from volary.data.remarks import not_read
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.memory import InMemory
    from volary.data.samples import Split
    from volary.data.storage.place import Place

_PIXELS = 3 * 32 * 32
_FILES = {"train": ("data_batch_[1-5].bin", "train.bin"), "test": ("test_batch.bin", "test.bin")}  # CIFAR-10, CIFAR-100
_NAMES = {10: "batches.meta.txt", 20: "coarse_label_names.txt", 100: "fine_label_names.txt"}  # of so many classes
_BESIDE = (*_NAMES.values(), "readme.html")  # no samples in them
_ACCEPTED = "data_batch_1.bin to data_batch_5.bin and test_batch.bin (CIFAR-10), or train.bin and test.bin (CIFAR-100)"


@dataclass(frozen=True, kw_only=True)
class Cifar:
    """Images (3, 32, 32) in float32: (value / 255 - mean) / std. Kept in memory as uint8."""

    folder: Location  # holds data_batch_*.bin and test_batch.bin, or train.bin and test.bin
    coarse: bool = False  # CIFAR-100: the 20 coarse classes instead of the 100 fine ones
    mean: tuple[float, ...] = (0.0,)  # taken off each value (0 to 1): one number, or one per channel
    std: tuple[float, ...] = (1.0,)  # divides after that: one number, or one per channel

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError(f"folder is empty; accepted: a folder with {_ACCEPTED}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, 3):
                raise SettingError(f"{name} has {len(values)} numbers; accepted: 1, or one per channel")
        if min(self.std) <= 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the files exist and have whole records."""
        for split in parts:
            self.count(split)

    def count(self, split: Split) -> int:
        """The count of samples by the files' lengths. Raises DataError if a length does not fit."""
        files, record = self._files(split)
        for file in files:
            if not file.stat().st_size or file.stat().st_size % record:
                raise DataError(
                    f"{file}: {file.stat().st_size} bytes; accepted: a multiple of {record}, one or more whole records"
                )
        return sum(file.stat().st_size for file in files) // record

    def open(self, split: Split) -> InMemory:
        """Read all files of the part, and what classes are called. Raises DataError for a label that no class has."""
        import numpy as np
        import torch

        from volary.data.memory import InMemory

        self.count(split)
        files, record = self._files(split)
        parts = [np.frombuffer(file.read_bytes(), dtype=np.uint8).reshape(-1, record) for file in files]
        fine = record - _PIXELS - 1
        column, classes = 0 if self.coarse else fine, 10 if not fine else 20 if self.coarse else 100
        for file, part in zip(files, parts, strict=True):
            for row in np.flatnonzero(part[:, column] >= classes)[:1]:
                label = part[row, column]
                raise DataError(f"{file}: sample {row} has the label {label}; accepted: 0 to {classes - 1}")
        rows = np.concatenate(parts)
        labels = rows[:, column]
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        pixels = torch.from_numpy(np.ascontiguousarray(rows[:, -_PIXELS:])).view(-1, 3, 32, 32)
        targets, scale, shift = torch.from_numpy(labels.astype(np.int64)), 1 / (255 * std), -mean / std
        remarks, names = self._remarks(record), self._class_names(classes)
        return InMemory(pixels, targets, classes, scale, shift, remarks=remarks, class_names=names)

    def _class_names(self, classes: int) -> tuple[str, ...]:
        """One a line, as their publisher put them beside the data; none if the file is not there."""
        path = located(self.folder) / _NAMES[classes]
        if not path.exists():
            return ()
        found = [line.strip() for line in path.read_bytes().decode("utf-8", "replace").splitlines() if line.strip()]
        if len(found) != classes or len({*found}) != classes:
            raise DataError(f"{path}: has {len({*found})} names; accepted: {classes}, one a line, or no such file")
        return tuple(found)

    def _remarks(self, record: int) -> tuple[str, ...]:
        """Remarks on what else is in the folder than both parts and what their publisher put beside them."""
        folder = located(self.folder)
        patterns = [names[record - _PIXELS - 1] for names in _FILES.values()]
        read = [path for pattern in patterns for path in matching(folder, pattern)]
        others = [path.name for path in matching(folder, "*") if path not in read]
        return not_read(folder, "file", [name for name in others if name not in _BESIDE])

    def _files(self, split: Split) -> tuple[list[Place], int]:
        """The part's files, and the bytes of a record."""
        folder = existing_folder(located(self.folder), f"a folder with {_ACCEPTED}")
        ten, hundred = (matching(folder, pattern) for pattern in _FILES[split])
        if ten and not self.coarse:
            return ten, 1 + _PIXELS
        if hundred:
            return hundred, 2 + _PIXELS
        missing = _FILES[split][1] if self.coarse else " nor ".join(_FILES[split])
        raise DataError(f"{folder}: has no {missing}; accepted: {_ACCEPTED}")


SOURCE = Cifar
