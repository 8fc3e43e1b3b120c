"""A square anywhere in the image, which may first get a black border (Krizhevsky et al. 2012; He et al. 2016: 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.data.transforms._base import too_small
from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """Images that are smaller than the square, with their border, are refused."""

    size: int = 32  # pixels of a side
    padding: int = 0  # black pixels that are put at each side before
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"size is {self.size}; accepted: 1 or more")
        if not 0 <= self.padding <= 4096:
            raise SettingError(f"padding is {self.padding}; accepted: 0 to 4096")

    def __call__(self, image: Array, random: Generator) -> Array:
        import numpy as np

        height, width = image.shape[:2]
        spare = [length + 2 * self.padding - self.size for length in (height, width)]
        if min(spare) < 0:
            raise too_small(image, "random_crop", self.size - 2 * self.padding)
        top, left = (int(random.integers(0, most, endpoint=True)) - self.padding for most in spare)
        found = np.zeros((self.size, self.size, image.shape[2]), dtype=image.dtype)
        rows, columns = (slice(max(0, start), max(0, start + self.size)) for start in (top, left))
        inside = image[rows, columns]
        down, right = max(0, -top), max(0, -left)
        found[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
        return found


TRANSFORM = RandomCrop
