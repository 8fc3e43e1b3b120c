"""The protocol of transforms: settings that need no NumPy, and one sample in, one out, from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from volary.errors import DataError

if TYPE_CHECKING:
    from numpy.random import Generator
    from PIL.Image import Image

    from volary.data.decoding.decoder import Array


class Transform(Protocol):
    """Settings of a transform: a frozen dataclass."""

    varies: ClassVar[bool]  # whether it is another one in each epoch; what comes before the first such one is cached

    def __call__(self, image: Array, random: Generator) -> Array:
        """An image (height, width, channels) of uint8 (after `mean_image` of float32), or another one; the given one
        stays as it is.

        random: decides what is random, the same for a sample in an epoch whoever makes it. Raises DataError for an
        image that it cannot be done to.
        """
        ...


def too_small(image: Array, transform: str, least: int) -> DataError:
    """Make the error for an image with a side shorter than `least` pixels."""
    return DataError(
        f"is {image.shape[1]}x{image.shape[0]} pixels; accepted by {transform}: at least {least}x{least}, as the "
        "setting `size` or a `resize` among the transforms before it makes them"
    )


def as_pillow(image: Array) -> Image:
    """The pixels as Pillow has them. Raises DataError for other values than bytes."""
    from PIL import Image

    if image.dtype != "uint8":
        raise DataError("is not of bytes any more; accepted: mean_image after the transforms that need these")
    return Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])


def as_array(image: Image) -> Array:
    """The image as an array of (height, width, channels), uint8."""
    import numpy as np

    return np.asarray(image).reshape(image.height, image.width, -1)
