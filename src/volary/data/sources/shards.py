"""Tar shards in WebDataset's convention: neighbours whose names are the same up to the first dot are one sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_folder, matching
from volary.data.loading.image_settings import ImageSettings
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.formats.archive import Archive, ArchiveMember
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

    def check(self) -> None:
        """Look whether each part has shards and the first one starts as a tar."""
        from volary.data.formats.archive import check_archive

        for split in ("train", "test"):
            check_archive(self._shards(split)[0])

    def count(self, split: Split) -> None:
        """Unknown before the shards have been listed."""

    def open(self, split: Split) -> Pipeline:
        """List the members and read the labels."""
        import torch

        from volary.data.formats.labels import Labels

        images, texts = self._listed(split)
        training, said = (images, texts) if split == "train" else self._listed("train")
        labels = Labels(said, str(located(self.folder) / self.train), training.name)
        targets = labels.numbered(texts, images.name)
        return self.decoded(images, torch.from_numpy(targets), labels.count, split)

    def _listed(self, split: Split) -> tuple[TarMembers, list[str]]:
        """The images of the part's shards, and what their labels say."""
        from volary.data.formats.archive import Archive
        from volary.data.records.members import TarMembers

        archives = [Archive.open(path) for path in self._shards(split)]
        images: list[tuple[int, ArchiveMember]] = []
        texts: list[str] = []
        for number, archive in enumerate(archives):
            for key, parts in _samples(archive):
                image = next((parts[ending] for ending in self.image if ending in parts), None)
                if image is None or self.target not in parts:
                    lacks = f".{self.target}" if image else f"image (.{', .'.join(self.image)})"
                    raise DataError(f"{archive.path}:{key}: has no {lacks}; it has .{', .'.join(parts)}")
                images.append((number, image))
                label = parts[self.target]
                texts.append(archive.read(label.offset, label.size).decode("utf-8", "replace").strip())
        if not images:
            raise DataError(f"{archives[0].path}: empty: no sample found; accepted: tars of key.jpg and key.cls")
        return TarMembers(archives, images), texts

    def _shards(self, split: Split) -> list[Place]:
        folder = existing_folder(located(self.folder), "a folder with the shards of both parts")
        found = matching(folder, getattr(self, split))
        if not found:
            raise DataError(f"{folder}: has no {getattr(self, split)}; accepted: tars of key.jpg and key.cls")
        return found


def _samples(archive: Archive) -> list[tuple[str, dict[str, ArchiveMember]]]:
    """Neighbours with one key: the name up to its first dot."""
    samples: list[tuple[str, dict[str, ArchiveMember]]] = []
    for member in archive.members:
        stem, _, ending = member.name.name.partition(".")
        if not stem or not ending:
            continue
        key = str(member.name.parent / stem)
        if not samples or samples[-1][0] != key:
            samples.append((key, {}))
        samples[-1][1][ending.lower()] = member
    return samples


SOURCE = Shards
