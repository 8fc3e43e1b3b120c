"""The square in the middle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.data.transforms._base import too_small
from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class CentreCrop:
    """The middle of each image; smaller images are refused."""

    size: int = 224  # pixels of a side
    varies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"size is {self.size}; accepted: 1 or more")

    def __call__(self, image: Array, random: Generator) -> Array:
        height, width = image.shape[:2]
        if min(height, width) < self.size:
            raise too_small(image, "centre_crop", self.size)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return image[top : top + self.size, left : left + self.size]


TRANSFORM = CentreCrop
