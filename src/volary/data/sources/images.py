"""Image files in class folders, as folders or as tars of them (CIFAR-10 as JPEGs, ImageNet's layout)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.archive import SUFFIXES, check_archive
from volary.data.files import existing_folder
from volary.errors import DataError, SettingError

if TYPE_CHECKING:
    from volary.data._base import Split
    from volary.data.pictures import Picture, Pictures


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images (channels, height, width) in float32: (value / 255 - mean) / std. Class folders, numbered by name."""

    folder: Path  # holds both parts
    train: str = "train"  # the training part in it: a folder of class folders, or the same as .tar, .tar.gz or .tgz
    test: str = "test"  # the validation data in it, likewise
    size: int | None = None  # side in pixels to which each image is resized; none: all have one size already
    channels: int = 3  # 3: colour, 1: grey
    mean: tuple[float, ...] = (0.0,)  # taken off each value (0 to 1): one number, or one per channel
    std: tuple[float, ...] = (1.0,)  # divides after that: one number, or one per channel
    cache_mb: int = 1024  # keep decoded images in memory if all of a part fit into so many MiB per worker; 0: never

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the training and the test part")
        if self.size is not None and not 1 <= self.size <= 4096:
            raise SettingError(f"size is {self.size}; accepted: 1 to 4096")
        if self.channels not in (1, 3):
            raise SettingError(f"channels is {self.channels}; accepted: 1 (grey), 3 (colour)")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise SettingError(f"{name} has {len(values)} numbers; accepted: 1, or one per channel")
        if min(self.std) <= 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")
        if self.cache_mb < 0:
            raise SettingError(f"cache_mb is {self.cache_mb}; accepted: 0 or more")

    def check(self) -> None:
        """Look whether both parts exist: a folder has a class folder in it, a tar starts as one."""
        for path in (self._part("train"), self._part("test")):
            if not path.is_dir():
                check_archive(path)
            elif not any(entry.is_dir() for entry in path.iterdir()):
                raise DataError(f"{path}: has no folder in it; accepted: one folder of images per class")

    def count(self, split: Split) -> None:
        """Unknown before the files have been listed."""

    def open(self, split: Split) -> Pictures:
        """List the files. Raises DataError if a test image is of a class that the training part has not."""
        import torch

        from volary.data.pictures import Decoder, Pictures

        training = self._list("train")
        pictures = training if split == "train" else self._list("test")
        classes = {name: label for label, name in enumerate(sorted({picture.folder for picture in training}))}
        for picture in pictures:
            if picture.folder not in classes:
                raise DataError(f"{picture.name}: class {picture.folder!r} is not in {self._part('train')}")
        targets = torch.tensor([classes[picture.folder] for picture in pictures])
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        decoder, cache_bytes = Decoder(self.channels, self.size), self.cache_mb * 2**20
        return Pictures(pictures, targets, len(classes), decoder, 1 / (255 * std), -mean / std, cache_bytes)

    def _list(self, split: Split) -> list[Picture]:
        from volary.data.pictures import list_archive, list_folder

        path = self._part(split)
        return list_folder(path) if path.is_dir() else list_archive(path)

    def _part(self, split: Split) -> Path:
        """Where the split is: the name as it stands, else with the ending of a tar."""
        folder = existing_folder(Path(self.folder), "a folder with a training and a test part")
        name = self.train if split == "train" else self.test
        for candidate in (folder / name, *(folder / f"{name}{suffix}" for suffix in SUFFIXES)):
            if candidate.exists():
                return candidate
        raise DataError(f"{folder}: has no {name}; accepted: a folder {name}, or {name}.tar, {name}.tar.gz, {name}.tgz")


SOURCE = Images
