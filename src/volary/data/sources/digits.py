"""The embedded default: 1,797 handwritten digits of 8x8 pixels (UCI, Alpaydin & Kaynak 1998, CC BY 4.0).

They come in the order in which 13 people wrote them. Every fifth is validation data, so that each writer and each class
is in both parts: the accuracy says how well *known hands* are read. A split by writer would be the harder question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.formats.idx_file import IdxFile
from volary.data.samples import BOTH
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.data.memory import InMemory
    from volary.data.samples import Split

_FOLDER = Path(__file__).parent / "_digits"
_VALIDATION_EVERY = 5  # every fifth


@dataclass(frozen=True, kw_only=True)
class Digits:
    """1,437 digits to train with and 360 to validate with, one channel, values 0 to 1, 10 classes."""

    size: int = 28  # pixels of a side, with the border (28: what LeNet takes)
    border: int = 6  # blank pixels on each side; the 8x8 digits are enlarged bilinearly to what is left between

    def __post_init__(self) -> None:
        if self.border < 0:
            raise SettingError(f"border is {self.border}; accepted: 0 or more")
        if not 8 + 2 * self.border <= self.size <= 512:
            raise SettingError(f"size is {self.size}; accepted: {8 + 2 * self.border} (8 and two borders) to 512")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look at the two files that are part of the package."""
        for file in (self._images(), self._labels()):
            file.check_length()

    def count(self, split: Split) -> int:
        """360 of the 1,797 are validation data."""
        everything = self._labels().shape[0]
        validation = -(-everything // _VALIDATION_EVERY)
        return validation if split == "test" else everything - validation

    def open(self, split: Split) -> InMemory:
        """Read, enlarge and keep the split in memory (1,437 x 28 x 28 float32: 4.5 MB)."""
        import torch
        from torch.nn.functional import interpolate, pad

        from volary.data.memory import InMemory

        images = self._images().read()
        chosen = torch.arange(len(images)) % _VALIDATION_EVERY == 0
        if split == "train":
            chosen = ~chosen
        inputs = images[chosen].unsqueeze(1).to(torch.float32) / 16
        # a border as MNIST has it: digits that touch the edge cost LeNet about a percent
        side = self.size - 2 * self.border
        inputs = pad(interpolate(inputs, size=(side, side), mode="bilinear", align_corners=False), (self.border,) * 4)
        return InMemory(inputs, self._labels().read()[chosen].long(), classes=10)

    def _images(self) -> IdxFile:
        return IdxFile.at(_FOLDER / "images-idx3-ubyte.gz", rank=3)

    def _labels(self) -> IdxFile:
        return IdxFile.at(_FOLDER / "labels-idx1-ubyte.gz", rank=1)


SOURCE = Digits
