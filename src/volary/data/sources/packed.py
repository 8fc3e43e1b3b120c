"""Images in shards that `volary data pack` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_file, existing_folder
from volary.data.loading.image_settings import ImageSettings
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Split

_ACCEPTED = "what `volary data pack SESSION FOLDER` wrote"


@dataclass(frozen=True, kw_only=True)
class PackedShards(ImageSettings):
    """Images (channels, height, width) in float32, in the order in which they were packed."""

    folder: Location  # holds the parts `train` and `test`, as `volary data pack` wrote them

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folder:
            raise SettingError(f"folder is empty; accepted: {_ACCEPTED}")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the parts have an index."""
        for split in parts:
            folder = existing_folder(located(self.folder) / split, _ACCEPTED)
            existing_file(folder / "index.npz", f"{_ACCEPTED}: if it was stopped, the same command finishes it")

    def count(self, split: Split) -> None:
        """Unknown before the index is read."""

    def open(self, split: Split) -> Pipeline:
        """Read the index. Raises DataError for a shard that is missing or has another length."""
        import torch

        from volary.data.data_names import DataNames, agreeing
        from volary.data.records.packed import Index, Packed

        packed = Packed(located(self.folder) / split)
        index, folder = packed.index, located(self.folder)
        training = index if split == "train" else Index.read(folder / "train" / "index.npz")
        samples = self.decoded(packed, torch.from_numpy(index.labels), index.classes, split)
        samples.remarks, samples.class_names = packed.remarks, index.class_names
        names = DataNames(training.class_names, training.classes)
        return agreeing(samples, names, str(folder / split), str(folder / "train"))


SOURCE = PackedShards
