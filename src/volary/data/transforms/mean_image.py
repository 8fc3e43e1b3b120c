"""The mean image of a data set is taken off each of its images (Krizhevsky et al. 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from volary.errors import DataError

if TYPE_CHECKING:
    from numpy.random import Generator

    from volary.data.decoding.decoder import Array


@dataclass(frozen=True, kw_only=True)
class MeanImage:
    """The next transform gets numbers of 32 bits, from -255 to 255: crops and flips take them."""

    file: Path  # an array (channels, height, width), or a number per channel: .npy, or Caffe's .binaryproto
    varies: ClassVar[bool] = False

    def __call__(self, image: Array, random: Generator) -> Array:
        import numpy as np

        mean = _mean(self.file)
        if mean.shape[-1] != image.shape[-1] or (mean.ndim == 3 and mean.shape != image.shape):
            *sides, channels = (*((1, 1) if mean.ndim == 1 else mean.shape[:2]), mean.shape[-1])
            size = "" if mean.ndim == 1 else f"{sides[1]}x{sides[0]} pixels and "
            raise DataError(
                f"is {image.shape[1]}x{image.shape[0]} pixels and has {image.shape[2]} channels; the mean image "
                f"{self.file} has {size}{channels} channels: put `resize` and `centre_crop` before it"
            )
        return np.asarray(image - mean, np.float32)


@cache
def _mean(file: Path) -> Array:
    from volary.data.formats.mean_file import read_mean

    found = read_mean(file)
    return found if found.ndim == 1 else found.transpose(1, 2, 0)


TRANSFORM = MeanImage
