"""Image files in class folders, as folders or as tars of them (CIFAR-10 as JPEGs, ImageNet's layout)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.class_folders import check_part, part_of
from volary.data.loading.image_settings import ImageSettings
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Split


@dataclass(frozen=True, kw_only=True)
class Images(ImageSettings):
    """Images (channels, height, width) in float32: (value / 255 - mean) / std. Class folders, numbered by name."""

    folder: Location  # holds both parts
    train: str = "train"  # the training part in it: a folder of class folders, or the same as .tar, .tar.gz or .tgz
    test: str = "test"  # the validation data in it, likewise

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the training and the test part")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the parts exist: a folder has a class folder in it, a tar starts as one."""
        for split in parts:
            check_part(part_of(located(self.folder), getattr(self, split)))

    def count(self, split: Split) -> None:
        """Unknown before the files have been listed."""

    def open(self, split: Split) -> Pipeline:
        """List the files. Raises DataError if a test image is of a class that the training part has not."""
        import torch

        from volary.data.decoding.images import ACCEPTED, SUFFIXES
        from volary.data.records.classes import list_split

        parts: dict[Split, str] = {"train": self.train, "test": self.test}
        listed = list_split(located(self.folder), parts, split, SUFFIXES, ACCEPTED)
        samples = self.decoded(listed.records, torch.from_numpy(listed.targets), len(listed.class_names), split)
        samples.remarks, samples.class_names = listed.remarks, listed.class_names
        return samples


SOURCE = Images
