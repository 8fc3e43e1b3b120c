"""The shorter side gets a length, the other one as many times it as before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class Resize:
    """Bilinear, over all pixels that a new one covers."""

    size: int = 256  # pixels of the shorter side
    varies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 4096:
            raise SettingError(f"size is {self.size}; accepted: 1 to 4096")

    def __call__(self, image: Array, random: Generator) -> Array:
        """Resize it, unless it has the size."""
        from PIL import Image

        from volary.data.transforms._base import as_array, as_pillow

        height, width = image.shape[:2]
        scale = self.size / min(height, width)
        if scale == 1:
            return image
        to = max(1, round(width * scale)), max(1, round(height * scale))
        return as_array(as_pillow(image).resize(to, Image.Resampling.BILINEAR))


TRANSFORM = Resize
