"""LMDB databases of Caffe's Datum. Needs the extra `lmdb`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_file
from volary.data.loading.image_settings import ImageSettings
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.records.lmdb import LmdbRecords
    from volary.data.records.records import Bytes
    from volary.data.samples import Split
    from volary.data.storage.place import Place

_ACCEPTED = "an LMDB database of Caffe's Datum: a folder with data.mdb, or the file"


@dataclass(frozen=True, kw_only=True)
class Lmdb(ImageSettings):
    """Images (channels, height, width) in float32, in the order of the keys."""

    train: Location  # the database of the training part: a folder with data.mdb, or the file itself
    test: Location | None = None  # the database of the validation data, likewise
    bgr: bool = True  # whether colours that are not encoded are stored as blue, green, red, as Caffe's tools do it

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train", "test"):
            if getattr(self, name) == "":
                raise SettingError(f"{name} is empty; accepted: {_ACCEPTED}")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        for split in parts:
            self._path(split)

    def count(self, split: Split) -> None:
        pass

    def open(self, split: Split) -> Pipeline:
        """Read the keys and labels. Raises DataError for a value that is no Datum."""
        import torch

        from volary.data.decoding.datum import DatumDecoder
        from volary.data.decoding.images import ImageDecoder

        values, labels = self._labels(split)
        training = labels if split == "train" else self._labels("train")[1]
        classes = max(training) + 1
        if max(labels) >= classes:
            first = next(number for number, label in enumerate(labels) if label >= classes)
            raise DataError(
                f"{values.name(first)}: has the label {labels[first]}; accepted: 0 to {classes - 1}, as in {self.train}"
            )
        decoder = DatumDecoder(ImageDecoder(self.channels, self.size), self.bgr)
        return self.decoded(values, torch.tensor(labels), classes, split, decoder)

    def _labels(self, split: Split) -> tuple[LmdbRecords, list[int]]:
        from volary.data.records.lmdb import LmdbRecords

        path = self._path(split)
        values = LmdbRecords(path)
        labels = values.each(_label)
        if not labels:
            raise DataError(f"{path}: empty: it has no key; accepted: {_ACCEPTED}")
        return values, labels

    def _path(self, split: Split) -> Place:
        path = located(getattr(self, split))
        existing_file(path / "data.mdb" if path.is_dir() else path, _ACCEPTED)
        return path


def _label(value: Bytes) -> int:
    from volary.data.decoding.datum import parsed
    from volary.data.formats.labels import MOST_CLASSES

    label = parsed(value).label
    if label is None or not 0 <= label < MOST_CLASSES:
        raise ValueError("has no label" if label is None else f"has the label {label}")
    return label


SOURCE = Lmdb
