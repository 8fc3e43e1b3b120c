"""Image files to 8 bits a channel by Pillow: what each format may hold becomes grey or colour, or is refused."""

from __future__ import annotations

import io
from typing import Any, cast

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from volary.data.decoding.decoder import Array
from volary.data.decoding.exif import orientation_of, upright
from volary.data.records.records import Bytes, refuse_large

PIXELS_LIMIT = 64 * 2**20  # of one image: 8192 x 8192; its header says how many there are
FRAMES, TRANSPARENCY, CHANNELS = DROPPED = (
    "further frames or pages, of which only the first is read",
    "transparency, which is not read (colours are as stored)",
    "channels beside grey or colours, which are not read",
)
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "PPM", "TIFF")  # nor those for which Pillow runs programs
_NAMES = "JPEG, PNG, BMP, GIF, WebP, PBM, PGM, PPM, TIFF"
_BITS, _PHOTOMETRIC, _EXTRA, _SAMPLE_FORMAT = 258, 262, 338, 339  # tags of TIFF
_WHITE_IS_ZERO = 0
_UNSIGNED, _FLOAT, _UNDEFINED = 1, 3, 4


def decoded(record: Bytes, channels: int) -> tuple[Array, frozenset[str]]:
    """Pixels (height, width, channels) of uint8, and what of the file is not among them: some of DROPPED.

    channels: 1 or 3. Raises ValueError, and whatever Pillow raises for damaged files.
    """
    with _opened(record) as image:
        refuse_large(image.width * image.height, PIXELS_LIMIT, f"pixels ({image.width}x{image.height})")
        _refuse_unreadable(image)
        several = getattr(image, "is_animated", False) or _more_follows(image, len(record))
        image.load()
        dropped = {FRAMES} if several else set()
        if _transparent(image):
            dropped.add(TRANSPARENCY)
        if 0 in _tags(image, _EXTRA):
            dropped.add(CHANNELS)
        # of TIFF Pillow has turned it already
        turn = orientation_of(image.info.get("exif", b"").removeprefix(b"Exif\0\0"))
        pixels = converted(image, channels)
        return pixels if turn == 1 else upright(pixels, turn), frozenset(dropped)


def converted(image: Image.Image, channels: int) -> Array:
    """The loaded image's pixels (height, width, channels) of uint8."""
    if image.mode.startswith(("I", "F")):
        grey = _grey(image)
        return grey[:, :, None] if channels == 1 else grey[:, :, None].repeat(3, axis=2)
    if image.mode in ("La", "RGBa"):  # colours that were multiplied by their opacity
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    image.info.pop("transparency", None)  # Pillow would warn of it, or convert it, too
    image = image.convert("RGB" if channels == 3 else "L")
    return np.array(image).reshape(image.height, image.width, channels)


def _opened(record: Bytes) -> ImageFile.ImageFile:
    """The file with its header read."""
    if not len(record):
        raise ValueError("it is empty (0 bytes)")
    try:
        return Image.open(io.BytesIO(record), formats=_FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"its header is damaged, or not one that is read of {_NAMES}") from None


def _refuse_unreadable(image: Image.Image) -> None:
    """Raise ValueError for what Pillow would read as something else than it is."""
    formats = set(_tags(image, _SAMPLE_FORMAT)) or {_UNSIGNED}
    bits = max(_tags(image, _BITS), default=8)
    if not formats <= {_UNSIGNED, _FLOAT, _UNDEFINED} or (bits == 32 and _FLOAT not in formats):
        signed = "" if _UNSIGNED in formats else "signed "
        raise ValueError(f"it has {signed}integers of {bits} bits; accepted: unsigned ones of up to 16 bits, or floats")
    if image.mode == "LAB":
        raise ValueError("its colours are CIE L*a*b*; accepted: grey, RGB, YCbCr, CMYK, a palette")
    if image.mode == "F" and _WHITE_IS_ZERO in _tags(image, _PHOTOMETRIC):
        raise ValueError("it has floats of which 0 is white; accepted: floats of 0 (black) to 1 (white)")
    if image.format == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info:
        raise ValueError("it is CMYK without Adobe's marker, so that values may be inverted or not; accepted: with it")


def _grey(image: Image.Image) -> Array:
    """Grey of more than 8 bits in 8: the highest of integers; floats of 0 to 1 are black to white."""
    values = np.asarray(image)
    if image.mode == "F":
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"it has floats of {values.min():g} to {values.max():g}; accepted: 0 (black) to 1 (white)")
        return np.round(values * 255).astype(np.uint8)
    grey: Array = (values >> max(_tags(image, _BITS, (16,))) - 8).astype(np.uint8)
    return 255 - grey if _WHITE_IS_ZERO in _tags(image, _PHOTOMETRIC) else grey


def _transparent(image: Image.Image) -> bool:
    """Whether any pixel of the loaded image lets through what is behind it."""
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        return image.getchannel(image.getbands()[-1]).getextrema() != (255, 255)
    return "transparency" in image.info


def _more_follows(image: ImageFile.ImageFile, size: int) -> bool:
    """Whether another image follows in a file of Netpbm's binary formats, which may have several."""
    if image.format != "PPM" or image.tile[0][0] == "ppm_plain":
        return False
    decoder, _, offset, settings = image.tile[0]
    wide = image.mode.startswith("I") or (decoder == "ppm" and cast("tuple[str, int]", settings)[1] > 255)
    bits = {"1": 1, "F": 32}.get(image.mode, 16 if wide else 8)
    row = -(-image.width * len(image.getbands()) * bits // 8)
    return bool(size > offset + row * image.height + 1)  # some programs end it with a line feed


def _tags(image: Image.Image, number: int, otherwise: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The numbers of a tag of TIFF. Other formats have none."""
    found: Any = getattr(image, "tag_v2", {}).get(number, otherwise)
    return found if isinstance(found, tuple) else (found,)
