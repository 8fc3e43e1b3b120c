"""Left and right are exchanged, now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirrors an image left to right, as a view of the same pixels."""

    share: float = 0.5  # of the images
    vertical: bool = False  # exchange top and bottom instead
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SettingError(f"share is {self.share}; accepted: 0 to 1")

    def __call__(self, image: Array, random: Generator) -> Array:
        """Flip the image, or not."""
        if random.random() >= self.share:
            return image
        return image[::-1] if self.vertical else image[:, ::-1]


TRANSFORM = Flip
