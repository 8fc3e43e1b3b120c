"""A part of the image of any size and shape within bounds, resized to a square (Szegedy et al. 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array

_TRIES = 10  # of sizes that fit into the image; then it is the largest square


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop:
    """Area and shape are drawn anew for each image in each epoch."""

    size: int = 224  # pixels of a side
    area: tuple[float, float] = (0.08, 1.0)  # least and largest share of the image's area
    shape: tuple[float, float] = (0.75, 4 / 3)  # least and largest width by height
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 4096:
            raise SettingError(f"size is {self.size}; accepted: 1 to 4096")
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise SettingError(f"area is {self.area}; accepted: two shares, above 0 up to 1, the smaller one first")
        if not 0 < self.shape[0] <= self.shape[1]:
            raise SettingError(f"shape is {self.shape}; accepted: two numbers above 0, the smaller one first")

    def __call__(self, image: Array, random: Generator) -> Array:
        """Cut and resize in one call."""
        from PIL import Image

        from volary.data.transforms._base import as_array, as_pillow

        box = self._box(image.shape[0], image.shape[1], random)
        return as_array(as_pillow(image).resize((self.size, self.size), Image.Resampling.BILINEAR, box=box))

    def _box(self, height: int, width: int, random: Generator) -> tuple[int, int, int, int]:
        """Left, top, right, bottom."""
        for _ in range(_TRIES):
            area = height * width * random.uniform(*self.area)
            shape = math.exp(random.uniform(math.log(self.shape[0]), math.log(self.shape[1])))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                left = int(random.integers(0, width - w, endpoint=True))
                top = int(random.integers(0, height - h, endpoint=True))
                return left, top, left + w, top + h
        side = min(height, width)
        left, top = (width - side) // 2, (height - side) // 2
        return left, top, left + side, top + side


TRANSFORM = RandomResizedCrop
