"""Brightness, contrast, saturation and hue change a little (Howard 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator
    from PIL.Image import Image

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class ColourJitter:
    """Changes each by a factor from 1 - x to 1 + x, drawn for each image and epoch. Grey images have the first two."""

    brightness: float = 0.4  # 0: stays; up to 1
    contrast: float = 0.4  # 0: stays; up to 1
    saturation: float = 0.4  # 0: stays; up to 1
    hue: float = 0.0  # largest turn of the colour circle, in turns; up to 0.5
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name} is {getattr(self, name)}; accepted: 0 to 1")
        if not 0 <= self.hue <= 0.5:
            raise SettingError(f"hue is {self.hue}; accepted: 0 to 0.5")

    def __call__(self, image: Array, random: Generator) -> Array:
        from PIL import ImageEnhance

        from volary.data.transforms._base import as_array, as_pillow

        found = as_pillow(image)
        colour = image.shape[2] == 3
        ways = [(ImageEnhance.Brightness, self.brightness), (ImageEnhance.Contrast, self.contrast)]
        for enhancer, most in [*ways, (ImageEnhance.Color, self.saturation)] if colour else ways:
            if most:
                found = enhancer(found).enhance(random.uniform(1 - most, 1 + most))
        if self.hue and colour:
            found = _turned(found, random.uniform(-self.hue, self.hue))
        return as_array(found)


def _turned(image: Image, turns: float) -> Image:
    from PIL import Image as Pillow

    hue, saturation, value = image.convert("HSV").split()
    moved = hue.point([(level + round(turns * 256)) % 256 for level in range(256)])
    return Pillow.merge("HSV", (moved, saturation, value)).convert("RGB")


TRANSFORM = ColourJitter
