"""A source's transforms, one after the other: those that never vary belong to decoding, the others come after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from volary.data.decoding.decoder import Array, Decoder
from volary.data.records.records import Bytes
from volary.data.transforms._base import Transform
from volary.errors import DataError

_NOTHING_RANDOM = np.random.Generator(np.random.Philox(0))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A decoder, and the transforms that give the same in every epoch: what they make may be kept."""

    decoder: Decoder
    transforms: Sequence[Transform]

    @property
    def kind(self) -> str:
        return self.decoder.kind

    def __call__(self, record: Bytes, out: Array | None = None) -> Array:
        image = self.decoder(record)
        for transform in self.transforms:
            image = transform(image, _NOTHING_RANDOM)
        return image

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        return self.decoder.other(shape, first)

    def dropped(self) -> list[str]:
        return self.decoder.dropped()


@dataclass(frozen=True, eq=False)
class Varied:
    """Transforms that give something else in every epoch. seed: of what is random in them."""

    transforms: Sequence[Transform]
    seed: int

    def __call__(self, image: Array, epoch: int, index: int) -> Array:
        """The sample as it is in this epoch, whoever makes it, and on any number of workers."""
        # by counter: a generator of its own for each sample, without a state that would have an order
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, index]))
        for transform in self.transforms:
            image = transform(image, random)
        return image


@dataclass(frozen=True)
class UserTransform:
    """A callable of the user's: an image (height, width, channels) of uint8 and a generator to another image."""

    name: str
    function: Callable[[Array, np.random.Generator], Any]
    varies = True

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        """Return the function's result, if it is an image."""
        found = self.function(image, random)
        if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.ndim != 3:
            what = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else f"a {type(found).__name__}"
            raise DataError(f"{self.name} gave {what}; accepted: an array (height, width, channels) of uint8")
        return found


def divided(transforms: Sequence[Transform]) -> tuple[Sequence[Transform], Sequence[Transform]]:
    """Divide transforms into those before the first that varies, and the others."""
    first = next((place for place, one in enumerate(transforms) if one.varies), len(transforms))
    return transforms[:first], transforms[first:]
