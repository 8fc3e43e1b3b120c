"""Data sets of torchvision, by their names there. Needs the extra `torchvision`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.formats.files import existing_folder
from volary.data.loading.image_settings import ImageSettings
from volary.data.samples import BOTH
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Split


@dataclass(frozen=True, kw_only=True)
class Torchvision(ImageSettings):
    """Images with a class each, of a data set that `torchvision.datasets` finds on this machine."""

    dataset: str  # its name there, such as FashionMNIST
    root: str  # the folder that torchvision looks for it in
    train: str = "train"  # what the training part is called there, if its parts have names
    test: str = "test"  # what the validation data is called there, likewise
    download: bool = False  # let torchvision download what is not there; otherwise nothing is
    arguments: Any = field(default_factory=dict)  # more that its class takes, such as {split: letters} for EMNIST

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dataset", "root", "train", "test"):
            if not getattr(self, name):
                raise SettingError(f"{name} is empty; accepted: the name of a data set, its folder, and its parts")
        if not isinstance(self.arguments, dict):
            raise SettingError("arguments is no mapping; accepted: as {split: letters}")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look for torchvision, without importing it, and for the folder, if nothing is downloaded."""
        if find_spec("torchvision") is None:
            raise SettingError("torchvision is not installed; accepted: pip install 'volary[torchvision]' first")
        if not self.download:
            existing_folder(Path(self.root).expanduser(), f"the folder that torchvision has {self.dataset} in")

    def count(self, split: Split) -> None:
        """Unknown before the data set is opened."""

    def open(self, split: Split) -> Pipeline:
        """Read which class each image is of. Raises DataError for a data set of anything but images with a class."""
        import torch

        from volary.data.datasets.vision_part import VisionPart
        from volary.data.records.in_memory import InHand

        self.check()
        part = VisionPart.of(self, split)
        classes, names = part.classes, part.class_names
        if split == "test" and not names:  # numbers are of as many classes as are learnt
            classes = max(classes, VisionPart.of(self, "train").classes)
        records = InHand(part.image, len(part.targets), part.name)
        samples = self.decoded(records, torch.tensor(part.targets), classes, split)
        samples.class_names = names
        return samples


SOURCE = Torchvision
