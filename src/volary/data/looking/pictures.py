"""Small pictures of samples, as text that a page shows without a file: `data:` links."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from volary.data.decoding.images import ImageDecoder

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.records.records import Records

SIDE = 112  # pixels of a picture at most
SMALL = 40  # up to which it is kept without loss


@dataclass(frozen=True)
class Picture:
    """A sample as a `data:` link. width, height: in pixels, of the sample itself. grey: whether it has no colours.

    size: of the sample, in words.
    """

    name: str
    of_class: str
    width: int
    height: int
    grey: bool
    link: str
    size: str


def pictures(
    records: Records, numbers: Iterable[int], within: Path | None, class_of: Callable[[int], str]
) -> tuple[list[Picture], list[str]]:
    """Pictures of these records, and a sentence for each that cannot be read.

    within: the folder that their names are shortened by; a file that a link leads to out of it is left out.
    """
    found, damaged, decode = list[Picture](), list[str](), ImageDecoder(3, None)
    for number in numbers:
        name = records.name(number)
        if within is not None and not Path(name).resolve().is_relative_to(within.resolve()):
            continue
        short = Path(name).relative_to(within).as_posix() if within is not None else name
        try:
            pixels = decode(records.read(number))
        except Exception as problem:  # decoders of foreign bytes raise whatever they like
            damaged.append(f"{name}: cannot be read ({str(problem) or type(problem).__name__})")
            continue
        height, width, _ = pixels.shape
        grey = bool((pixels == pixels[:, :, :1]).all())
        size = f"{width} x {height}"
        found.append(Picture(short, class_of(number), width, height, grey, link_of(pixels), size))
    return found, damaged


def link_of(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """A picture of pixels (height, width, 1 or 3) of uint8, made smaller if it is larger than `SIDE`."""
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    kind = "png" if max(image.size) <= SMALL else "jpeg"
    image.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    image.save(written, kind, **({} if kind == "png" else {"quality": 80}))
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"


def link_of_input(values: Tensor) -> str:
    """A picture of one input, values (channels, height, width), black to white; empty for others."""
    if values.dim() != 3 or values.shape[0] not in (1, 3) or not values.is_floating_point():
        return ""
    low, high = values.min(), values.max()
    scaled = (values - low) / (high - low).clamp(min=1e-12) * 255
    return link_of(scaled.round().byte().movedim(0, -1).contiguous().numpy())
