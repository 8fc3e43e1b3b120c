"""Tar shards in WebDataset's convention: neighbours whose names are the same up to the first dot are one sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_folder, matching
from volary.data.loading.image_settings import ImageSettings
from volary.data.remarks import not_read
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.formats.archive import ArchiveMember
    from volary.data.loading.pipeline import Pipeline
    from volary.data.records.members import TarMembers
    from volary.data.samples import Split
    from volary.data.storage.place import Place


@dataclass(frozen=True, kw_only=True)
class Shards(ImageSettings):
    """Images (channels, height, width) in float32, in the order of the shards."""

    folder: Location  # holds the shards of both parts
    train: str = "train-*.tar"  # the shards of the training part in it, also .tar.gz and .tgz
    test: str = "test-*.tar"  # the shards of the validation data in it
    image: tuple[str, ...] = ("jpg", "jpeg", "png", "webp", "ppm")  # endings that the image of a sample may have
    target: str = "cls"  # the ending of the text file with its label: a number, or a name

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the shards")
        if not self.image:
            raise SettingError("image is empty; accepted: one or more endings")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether each part has shards and the first one starts as a tar."""
        from volary.data.formats.archive import check_archive

        for split in parts:
            check_archive(self._shards(split)[0])

    def count(self, split: Split) -> None:
        """Unknown before the shards have been listed."""

    def open(self, split: Split) -> Pipeline:
        """List the members and read the labels."""
        import torch

        from volary.data.formats.labels import Labels

        images, texts, remarks = self._listed(split)
        training, train_texts, _ = (images, texts, remarks) if split == "train" else self._listed("train")
        labels = Labels(train_texts, str(located(self.folder) / self.train), training.name)
        targets = labels.numbered(texts, images.name)
        samples = self.decoded(images, torch.from_numpy(targets), labels.count, split)
        samples.class_names = labels.names
        samples.remarks = (*remarks, *self._others(split))
        return samples

    def _listed(self, split: Split) -> tuple[TarMembers, list[str], tuple[str, ...]]:
        """The images of the part's shards, what their labels say, and remarks on the other members."""
        from volary.data.formats.archive import Archive
        from volary.data.records.members import TarMembers
        from volary.data.records.unread import Unread
        from volary.data.records.webdataset import tar_samples

        archives, unread = [Archive.open(path) for path in self._shards(split)], Unread()
        images: list[tuple[int, ArchiveMember]] = []
        texts: list[str] = []
        for number, archive in enumerate(archives):
            for sample in tar_samples(archive, self.image, self.target, unread):
                images.append((number, sample.image))
                texts.append(sample.label)
        if not images:
            raise DataError(f"{archives[0].path}: empty: no sample found; accepted: tars of key.jpg and key.cls")
        return TarMembers(archives, images), texts, unread.remarks(located(self.folder) / getattr(self, split))

    def _others(self, split: Split) -> tuple[str, ...]:
        """The remark on files of the folder that no part takes: with the training part."""
        folder = located(self.folder)
        taken = {path.name for part in (self.train, self.test) for path in matching(folder, part)}
        others = [path.name for path in matching(folder, "*") if path.name not in taken and path.is_file()]
        return not_read(folder, "file", others) if split == "train" else ()

    def _shards(self, split: Split) -> list[Place]:
        folder = existing_folder(located(self.folder), "a folder with the shards of both parts")
        found = matching(folder, getattr(self, split))
        if not found:
            raise DataError(f"{folder}: has no {getattr(self, split)}; accepted: tars of key.jpg and key.cls")
        return found


SOURCE = Shards
