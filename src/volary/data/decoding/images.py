"""Image files to arrays (height, width, channels) of uint8: JPEG by libjpeg-turbo, all else by Pillow."""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import simplejpeg
import torch
from PIL import Image

from volary.data.decoding.decoder import Array
from volary.data.decoding.exif import upright
from volary.data.decoding.jpeg_header import is_plain, jpeg_header
from volary.data.decoding.pixels import DROPPED, FRAMES, PIXELS_LIMIT, converted, decoded
from volary.data.records.records import Bytes, refuse_large

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".pbm", ".pgm", ".ppm", ".pnm", ".tif", ".tiff"}
)
_BILINEAR = torch.ops.aten._upsample_bilinear2d_aa.out
ACCEPTED = "class folders of image files (" + ", ".join(sorted(SUFFIXES)) + ")"


@dataclass(frozen=True, eq=False)
class ImageDecoder:
    """channels: 3 colour, 1 grey. side: in pixels, to which images are resized; None keeps the size."""

    channels: int
    side: int | None
    _scratch: threading.local = field(default_factory=threading.local)
    # a byte each of DROPPED, which forked processes set, too
    _dropped: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, len(DROPPED)))
    kind: ClassVar[str] = "an image"

    def __call__(self, record: Bytes, out: Array | None = None) -> Array:
        """Decode one image, uint8 of (height, width, channels), into `out` if it is given."""
        if is_plain(record):
            return self._jpeg(record, out)
        header = jpeg_header(record)
        if header is None or header.channels not in (1, 3):  # four are for printers
            return self._by_pillow(record, out)
        if header.several:
            self._note(FRAMES)
        return self._jpeg(record, out) if header.turn == 1 else upright(self._jpeg(record, None), header.turn)

    def _jpeg(self, record: Bytes, out: Array | None) -> Array:
        """A JPEG's pixels as they are stored, whichever way is up."""
        if out is not None and self.side is None:
            try:  # not suppress, nor names for arguments in what this calls: tiny images take 10 microseconds
                if self._strict(record, out).shape == out.shape:
                    return out
            except ValueError:  # it is larger, or damaged; its size is not read beforehand
                pass
        try:
            height, width, *_ = simplejpeg.decode_jpeg_header(record)
        except ValueError:  # damaged, or in a way that libjpeg-turbo's simple interface does not know
            return self._by_pillow(record, out)
        refuse_large(width * height, PIXELS_LIMIT, f"pixels ({width}x{height})")
        if self._fits(height, width):
            return self._strict(record, None)
        # memory that is at hand: fresh memory costs a page fault every 4 kB
        return self._resized(self._strict(record, self._memory(height * width * self.channels)), out)

    def dropped(self) -> list[str]:
        """Say what was not read of all files that were decoded so far, whoever decoded them."""
        return [what for number, what in enumerate(DROPPED) if self._dropped[number]]

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        return (
            f"is {shape[1]}x{shape[0]} pixels, the first image {first[1]}x{first[0]}; "
            "accepted: one size, or the setting `size`"
        )

    def _fits(self, height: int, width: int) -> bool:
        return self.side in (None, height) and self.side in (None, width)

    def _strict(self, record: Bytes, memory: Array | None) -> Array:
        colours = "RGB" if self.channels == 3 else "GRAY"
        pixels: Array = simplejpeg.decode_jpeg(record, colours, False, False, 0, 0, 1, memory, True)  # strict
        return pixels

    def _memory(self, size: int) -> Array:
        memory: Array | None = getattr(self._scratch, "memory", None)
        if memory is None or len(memory) < size:
            memory = self._scratch.memory = np.empty(size, dtype=np.uint8)
        return memory[:size]

    def _by_pillow(self, record: Bytes, out: Array | None) -> Array:
        pixels, dropped = decoded(record, self.channels)
        for what in dropped:
            self._note(what)
        return self._resized(pixels, out)

    def _note(self, dropped: str) -> None:
        self._dropped[DROPPED.index(dropped)] = 1

    def fitted(self, pixels: Array) -> Array:
        """Pixels (height, width, 1 or 3) that are decoded already, in our channels and size."""
        if pixels.shape[2] == self.channels and self._fits(*pixels.shape[:2]):
            return pixels
        return self._resized(converted(_image(pixels), self.channels))

    def _resized(self, pixels: Array, out: Array | None = None) -> Array:
        """Bilinear, over all pixels that a new one covers: as Pillow does, to a rounding, in a quarter of its time."""
        if self.side is None or self._fits(*pixels.shape[:2]):
            return pixels
        shape = self.side, self.side, self.channels
        found: Array = out if out is not None and out.shape == shape else np.empty(shape, dtype=np.uint8)
        planes, resized = (torch.from_numpy(image[None]).permute(0, 3, 1, 2) for image in (pixels, found))
        # what torch.nn.functional.interpolate calls, but for `out`: that gives planes, which cost as much to put back
        _BILINEAR(planes, [self.side, self.side], False, None, None, out=resized)
        return found


def _image(pixels: Array) -> Image.Image:
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
