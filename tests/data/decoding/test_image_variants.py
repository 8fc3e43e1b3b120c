"""Each variant of an image format is read as it is meant, or refused in a sentence: the rows of docs/data.md."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from data.decoding._image_files import bmp, packed_rows, png, saved, tiff
from volary.data.decoding.images import ImageDecoder

PAGE = Path(__file__).parents[3] / "docs" / "data.md"

ramp = np.linspace(0, 255, 48).round().astype(np.uint8).reshape(6, 8)
grey = np.repeat(ramp[:, :, None], 3, axis=2)
colour = np.stack([ramp, ramp[::-1], ramp[:, ::-1]], axis=2)
smooth = np.full((16, 16, 3), (200, 120, 40), dtype=np.uint8)
levels = {bits: np.arange(48).reshape(6, 8) % 2**bits for bits in (1, 2, 4)}
wide = (np.linspace(0, 65535, 48).round()).astype(np.uint16).reshape(6, 8)
opacity = np.full((6, 8), 100, dtype=np.uint8)
palette = np.random.default_rng(1).integers(0, 256, (256, 3), dtype=np.uint8)
FRAMES, TRANSPARENCY, CHANNELS = "further frames", "transparency", "channels beside"


class Is(NamedTuple):
    """The image as which a variant is read. within: by so much a value may differ. dropped: how remarks on it begin."""

    pixels: np.ndarray
    within: int = 0
    dropped: tuple[str, ...] = ()


def scaled(samples: np.ndarray, most: int) -> np.ndarray:
    return np.repeat((samples * 255 / most).round().astype(np.uint8)[:, :, None], 3, axis=2)


def high(samples: np.ndarray) -> np.ndarray:
    return np.repeat((samples >> 8).astype(np.uint8)[:, :, None], 3, axis=2)


def of_png(bits: int) -> tuple[bytes, Is]:
    return png(levels[bits], bits, 0), Is(scaled(levels[bits], 2**bits - 1))


def indexed(bits: int) -> tuple[bytes, Is]:
    samples = levels.get(bits, np.arange(48).reshape(6, 8))
    return png(samples, bits, 3, (b"PLTE", palette[: 2**bits].tobytes())), Is(palette[samples])


def with_alpha(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels, opacity[:, :, None].astype(pixels.dtype)], axis=2)


def several(kind: str, **settings: object) -> bytes:
    frames = [Image.fromarray(colour), Image.fromarray(colour[::-1].copy())]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], **settings)


def jpeg(image: Image.Image | None = None, **settings: object) -> bytes:
    return saved(image or Image.fromarray(smooth), "JPEG", quality=95, **settings)


def turned(orientation: int, kind: str) -> bytes:
    exif = Image.Exif()
    exif[0x112] = orientation
    stored = Image.fromarray(corner).transpose(TURNS[orientation])
    return saved(stored, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))


corner = np.zeros((16, 32, 3), dtype=np.uint8)
corner[:8, :8] = 255
T = Image.Transpose
TURNS = {3: T.ROTATE_180, 6: T.ROTATE_90, 8: T.ROTATE_270}  # how a camera that was turned has stored it

cmyk = jpeg(Image.new("CMYK", (16, 16), (40, 80, 120, 0)))
adobe = cmyk.index(b"Adobe")
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBggLDAsKDAkK"
    "Cgr/yQALCAAIABABAREA/8wABgAQEAX/2gAIAQEAAD8A/wDswL8xM3GAmm5No4FkPP/Z"
)


def patched(content: bytes, place: int, *values: int) -> bytes:
    return content[:place] + bytes(values) + content[place + len(values) :]


def grey_tiff(pixels: bytes, bits: int, black_is_zero: int = 1, **more: object) -> bytes:
    tags = {258: [bits], 262: [black_is_zero], **more.get("tags", {})}
    return tiff(pixels, (8, 6), tags, order=str(more.get("order", "<")))


def many(samples: np.ndarray, photometric: int, bits: int = 8, **more: list[int]) -> bytes:
    count = samples.shape[2]
    tags = {258: [bits] * count, 262: [photometric], **{int(tag[1:]): value for tag, value in more.items()}}
    return tiff(samples.astype("<u2" if bits == 16 else np.uint8).tobytes(), (8, 6), tags)


def text(magic: str, *numbers: np.ndarray | int) -> bytes:
    return f"{magic}\n8 6\n{' '.join(str(n) for part in numbers for n in np.ravel(part))}\n".encode()


def binary(magic: str, most: int, samples: np.ndarray) -> bytes:
    head = f"{magic}\n8 6\n{most}\n" if most else f"{magic}\n8 6\n"
    return head.encode() + samples.astype(">u2" if most > 255 else np.uint8).tobytes()


floats = (np.arange(48, dtype=np.float32) / 47).reshape(6, 8)
rgb555 = (colour >> 3).astype(np.uint16)
rgb565 = rgb555[:, :, 0] << 11 | (colour[:, :, 1] >> 2).astype(np.uint16) << 5 | rgb555[:, :, 2]
bmp_palette = np.concatenate([palette[:, ::-1], np.zeros((256, 1), np.uint8)], axis=1).tobytes()
eight = np.arange(48).reshape(6, 8)
bottom_up = colour[::-1, :, ::-1]

READ: dict[tuple[str, str], Callable[[], tuple[bytes, Is]]] = {
    ("PNG", "grey of 1 bit"): lambda: of_png(1),
    ("PNG", "grey of 2 bits"): lambda: of_png(2),
    ("PNG", "grey of 4 bits"): lambda: of_png(4),
    ("PNG", "grey of 8 bits"): lambda: (png(ramp, 8, 0), Is(grey)),
    ("PNG", "grey of 16 bits"): lambda: (png(wide, 16, 0), Is(high(wide))),
    ("PNG", "colour of 8 bits"): lambda: (png(colour, 8, 2), Is(colour)),
    ("PNG", "colour of 16 bits"): lambda: (png(colour.astype(np.uint16) * 257, 16, 2), Is(colour)),
    ("PNG", "palette of 1 bit"): lambda: indexed(1),
    ("PNG", "palette of 2 bits"): lambda: indexed(2),
    ("PNG", "palette of 4 bits"): lambda: indexed(4),
    ("PNG", "palette of 8 bits"): lambda: indexed(8),
    ("PNG", "grey and opacity"): lambda: (
        png(with_alpha(ramp[:, :, None]), 8, 4),
        Is(grey, dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "grey and opacity of 16 bits"): lambda: (
        png(with_alpha(ramp[:, :, None].astype(np.uint16) * 257), 16, 4),
        Is(grey, dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "colour and opacity"): lambda: (png(with_alpha(colour), 8, 6), Is(colour, dropped=(TRANSPARENCY,))),
    ("PNG", "colour and opacity of 16 bits"): lambda: (
        png(with_alpha(colour.astype(np.uint16) * 257), 16, 6),
        Is(colour, dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "a transparent colour"): lambda: (
        png(colour, 8, 2, (b"tRNS", struct.pack(">HHH", 0, 1, 2))),
        Is(colour, dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "a transparent grey of 16 bits"): lambda: (
        png(wide, 16, 0, (b"tRNS", struct.pack(">H", 0))),
        Is(high(wide), dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "a palette with opacity"): lambda: (
        png(eight, 8, 3, (b"PLTE", palette.tobytes()), (b"tRNS", bytes(48))),
        Is(palette[eight], dropped=(TRANSPARENCY,)),
    ),
    ("PNG", "interlaced"): lambda: (png(colour, 8, 2, interlaced=True), Is(colour)),
    ("PNG", "animated (APNG)"): lambda: (several("PNG"), Is(colour, dropped=(FRAMES,))),
    ("PNG", "stored turned (EXIF)"): lambda: (turned(6, "PNG"), Is(corner)),
    ("JPEG", "grey"): lambda: (jpeg(Image.fromarray(smooth[:, :, 0])), Is(smooth[:, :, [0]].repeat(3, 2), 2)),
    ("JPEG", "colour, YCbCr"): lambda: (jpeg(), Is(smooth, 3)),
    ("JPEG", "colour, RGB"): lambda: (jpeg(keep_rgb=True), Is(smooth, 3)),
    ("JPEG", "progressive"): lambda: (jpeg(progressive=True), Is(smooth, 3)),
    ("JPEG", "arithmetic coding"): lambda: (
        ARITHMETIC,
        Is(np.broadcast_to((np.arange(16, dtype=np.uint8) * 16)[None, :, None], (8, 16, 3)), 2),
    ),
    ("JPEG", "CMYK of Adobe"): lambda: (cmyk, Is(np.full((16, 16, 3), (215, 175, 135), np.uint8), 3)),
    ("JPEG", "YCCK of Adobe"): lambda: (
        # as YCCK, the C, M and Y of this one are brightness and two times no colour
        patched(jpeg(Image.new("CMYK", (16, 16), (55, 127, 127, 0))), adobe + 11, 2),
        Is(np.full((16, 16, 3), 55, np.uint8), 4),
    ),
    ("JPEG", "stored turned (EXIF)"): lambda: (turned(8, "JPEG"), Is(corner, 8)),
    ("JPEG", "several pictures (MPO)"): lambda: (several("MPO", quality=95), Is(colour, 60, (FRAMES,))),
    ("GIF", "one frame"): lambda: (saved(Image.fromarray(ramp), "GIF"), Is(grey)),
    ("GIF", "interlaced"): lambda: (saved(Image.fromarray(ramp), "GIF", interlace=True), Is(grey)),
    ("GIF", "a transparent colour"): lambda: (
        saved(Image.fromarray(ramp), "GIF", transparency=0),
        Is(grey, dropped=(TRANSPARENCY,)),
    ),
    ("GIF", "animated"): lambda: (several("GIF"), Is(colour, 16, (FRAMES,))),
    ("WebP", "lossy"): lambda: (saved(Image.fromarray(smooth), "WEBP", quality=95), Is(smooth, 6)),
    ("WebP", "lossless"): lambda: (saved(Image.fromarray(colour), "WEBP", lossless=True), Is(colour)),
    ("WebP", "with opacity"): lambda: (
        saved(Image.fromarray(with_alpha(colour)), "WEBP", lossless=True),
        Is(colour, dropped=(TRANSPARENCY,)),
    ),
    ("WebP", "animated"): lambda: (several("WEBP", lossless=True), Is(colour, dropped=(FRAMES,))),
    ("WebP", "stored turned (EXIF)"): lambda: (turned(3, "WEBP"), Is(corner)),
    ("BMP", "palette of 1 bit"): lambda: (
        bmp(b"".join(row + b"\0\0\0" for row in packed_rows(levels[1][::-1], 1)), (8, 6), 1, palette=bmp_palette[:8]),
        Is(palette[levels[1]]),
    ),
    ("BMP", "palette of 4 bits"): lambda: (
        bmp(b"".join(packed_rows(levels[4][::-1], 4)), (8, 6), 4, palette=bmp_palette[:64]),
        Is(palette[levels[4]]),
    ),
    ("BMP", "palette of 8 bits"): lambda: (
        bmp(eight[::-1].astype(np.uint8).tobytes(), (8, 6), 8, palette=bmp_palette),
        Is(palette[eight]),
    ),
    ("BMP", "run lengths (RLE8)"): lambda: (
        bmp(b"".join(bytes([8, row, 0, 0]) for row in range(6)) + b"\0\1", (8, 6), 8, palette=bmp_palette, packing=1),
        Is(palette[np.arange(5, -1, -1)[:, None].repeat(8, 1)]),
    ),
    ("BMP", "16 bits, 5 a colour"): lambda: (
        bmp((rgb555[:, :, 0] << 10 | rgb555[:, :, 1] << 5 | rgb555[:, :, 2])[::-1].tobytes(), (8, 6), 16),
        Is(colour, 8),
    ),
    ("BMP", "16 bits by masks"): lambda: (
        bmp(rgb565[::-1].tobytes(), (8, 6), 16, packing=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
        Is(colour, 8),
    ),
    ("BMP", "24 bits"): lambda: (bmp(bottom_up.tobytes(), (8, 6), 24), Is(colour)),
    ("BMP", "32 bits"): lambda: (bmp(with_alpha(bottom_up).tobytes(), (8, 6), 32), Is(colour)),
    ("BMP", "from the top down"): lambda: (bmp(colour[:, :, ::-1].tobytes(), (8, -6), 24), Is(colour)),
    ("TIFF", "grey of 1 bit"): lambda: (
        grey_tiff(b"".join(packed_rows(levels[1], 1)), 1),
        Is(scaled(levels[1], 1)),
    ),
    ("TIFF", "grey of 4 bits"): lambda: (
        grey_tiff(b"".join(packed_rows(levels[4], 4)), 4),
        Is(scaled(levels[4], 15)),
    ),
    ("TIFF", "grey of 8 bits"): lambda: (grey_tiff(ramp.tobytes(), 8), Is(grey)),
    ("TIFF", "grey of 12 bits"): lambda: (grey_tiff(twelve(wide >> 4), 12), Is(high(wide))),
    ("TIFF", "grey of 16 bits"): lambda: (grey_tiff(wide.tobytes(), 16), Is(high(wide))),
    ("TIFF", "grey of 16 bits, big-endian"): lambda: (
        grey_tiff(wide.astype(">u2").tobytes(), 16, order=">"),
        Is(high(wide)),
    ),
    ("TIFF", "grey, 0 is white"): lambda: (grey_tiff(ramp.tobytes(), 8, 0), Is(255 - grey)),
    ("TIFF", "grey of 16 bits, 0 is white"): lambda: (grey_tiff(wide.tobytes(), 16, 0), Is(255 - high(wide))),
    ("TIFF", "floats of 0 to 1"): lambda: (
        grey_tiff(floats.tobytes(), 32, tags={339: [3]}),
        Is(scaled(floats, 1)),
    ),
    ("TIFF", "palette"): lambda: (
        grey_tiff(eight.astype(np.uint8).tobytes(), 8, 3, tags={320: (palette.T.astype(int) * 257).ravel().tolist()}),
        Is(palette[eight]),
    ),
    ("TIFF", "colour of 8 bits"): lambda: (many(colour, 2), Is(colour)),
    ("TIFF", "colour of 16 bits"): lambda: (many(colour.astype(np.uint16) * 257, 2, 16), Is(colour)),
    ("TIFF", "colour plane by plane"): lambda: (
        tiff(
            colour.transpose(2, 0, 1).tobytes(),
            (8, 6),
            {258: [8] * 3, 262: [2], 284: [2], 273: [8, 56, 104], 279: [48, 48, 48]},
        ),
        Is(colour),
    ),
    ("TIFF", "colour and opacity"): lambda: (
        many(with_alpha(colour), 2, t338=[2]),
        Is(colour, dropped=(TRANSPARENCY,)),
    ),
    ("TIFF", "colour and another channel"): lambda: (
        many(with_alpha(colour), 2, t338=[0]),
        Is(colour, dropped=(CHANNELS,)),
    ),
    ("TIFF", "CMYK"): lambda: (
        many(np.concatenate([255 - colour, np.zeros((6, 8, 1), np.uint8)], axis=2), 5),
        Is(colour),
    ),
    ("TIFF", "LZW"): lambda: (saved(Image.fromarray(colour), "TIFF", compression="tiff_lzw"), Is(colour)),
    ("TIFF", "deflate"): lambda: (saved(Image.fromarray(colour), "TIFF", compression="tiff_adobe_deflate"), Is(colour)),
    ("TIFF", "PackBits"): lambda: (saved(Image.fromarray(colour), "TIFF", compression="packbits"), Is(colour)),
    ("TIFF", "fax (Group 4)"): lambda: (
        saved(Image.fromarray(levels[1].astype(bool)), "TIFF", compression="group4"),
        Is(scaled(levels[1], 1)),
    ),
    ("TIFF", "JPEG in TIFF"): lambda: (
        saved(Image.fromarray(smooth), "TIFF", compression="jpeg", quality=95),
        Is(smooth, 4),
    ),
    ("TIFF", "several pages"): lambda: (several("TIFF"), Is(colour, dropped=(FRAMES,))),
    ("TIFF", "stored turned"): lambda: (turned(6, "TIFF"), Is(corner)),
    ("PNM", "PBM as text (P1)"): lambda: (text("P1", levels[1]), Is(scaled(1 - levels[1], 1))),
    ("PNM", "PGM as text (P2)"): lambda: (text("P2", 255, ramp), Is(grey)),
    ("PNM", "PPM as text (P3)"): lambda: (text("P3", 255, colour), Is(colour)),
    ("PNM", "PBM (P4)"): lambda: (
        binary("P4", 0, np.packbits(levels[1].astype(np.uint8), axis=1)),
        Is(scaled(1 - levels[1], 1)),
    ),
    ("PNM", "PGM (P5)"): lambda: (binary("P5", 255, ramp), Is(grey)),
    ("PNM", "PPM (P6)"): lambda: (binary("P6", 255, colour), Is(colour)),
    ("PNM", "PGM of 16 bits"): lambda: (binary("P5", 65535, wide), Is(high(wide))),
    ("PNM", "PGM of up to 1023"): lambda: (binary("P5", 1023, wide >> 6), Is(high(wide), 1)),
    ("PNM", "PPM of up to 100"): lambda: (
        binary("P6", 100, (colour / 2.55).round().astype(int)),
        Is(colour, 2),
    ),
    ("PNM", "PPM of 16 bits"): lambda: (binary("P6", 65535, colour.astype(int) * 257), Is(colour)),
    ("PNM", "several images"): lambda: (2 * binary("P6", 255, colour), Is(colour, dropped=(FRAMES,))),
    ("PNM", "PFM, floats of 0 to 1"): lambda: (
        b"Pf\n8 6\n-1.0\n" + floats[::-1].astype("<f4").tobytes(),
        Is(scaled(floats, 1)),
    ),
}


def twelve(samples: np.ndarray) -> bytes:
    pairs = samples.reshape(-1, 2).astype(int)
    first, second = pairs[:, 0], pairs[:, 1]
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype(np.uint8).tobytes()


REFUSED: dict[tuple[str, str], tuple[Callable[[], bytes], str]] = {
    ("JPEG", "CMYK without Adobe's marker"): (
        lambda: cmyk[: adobe - 4] + cmyk[adobe + 12 :],
        "it is CMYK without Adobe's marker",
    ),
    ("JPEG", "12 bits a sample"): (lambda: patched(jpeg(), jpeg().index(b"\xff\xc0") + 4, 12), "12"),
    ("TIFF", "floats beyond 0 to 1"): (
        lambda: grey_tiff((floats * 2).tobytes(), 32, tags={339: [3]}),
        r"it has floats of 0 to 2; accepted: 0 \(black\) to 1 \(white\)",
    ),
    ("TIFF", "floats, 0 is white"): (
        lambda: grey_tiff(floats.tobytes(), 32, 0, tags={339: [3]}),
        "it has floats of which 0 is white",
    ),
    ("TIFF", "integers of 32 bits"): (
        lambda: grey_tiff(wide.astype("<u4").tobytes(), 32),
        "it has integers of 32 bits; accepted: unsigned ones of up to 16 bits, or floats",
    ),
    ("TIFF", "signed integers of 8 bits"): (
        lambda: grey_tiff(ramp.tobytes(), 8, tags={339: [2]}),
        "it has signed integers of 8 bits",
    ),
    ("TIFF", "signed integers of 16 bits"): (
        lambda: grey_tiff(wide.tobytes(), 16, tags={339: [2]}),
        "it has signed integers of 16 bits",
    ),
    ("TIFF", "CIE L\\*a\\*b\\*"): (lambda: many(colour, 8), r"its colours are CIE L\*a\*b\*"),
    ("PNM", "PAM (P7)"): (
        lambda: b"P7\nWIDTH 8\nHEIGHT 6\nDEPTH 1\nMAXVAL 255\nTUPLTYPE GRAYSCALE\nENDHDR\n" + ramp.tobytes(),
        "its header is damaged, or not one that is read of JPEG, PNG, BMP",
    ),
    ("others", "JPEG 2000, AVIF, HEIF, ICO, PSD, SVG"): (
        lambda: saved(Image.fromarray(colour), "JPEG2000"),
        "its header is damaged, or not one that is read of JPEG, PNG, BMP",
    ),
    ("others", "an empty file"): (lambda: b"", r"it is empty \(0 bytes\)"),
}


def luma(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))[:, :, None]


def differ(found: np.ndarray, expected: np.ndarray) -> int:
    assert (found.shape, found.dtype) == (expected.shape, np.uint8)
    return int(np.abs(found.astype(int) - expected).max())


@pytest.mark.parametrize("variant", READ, ids=" ".join)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_variant_is_read_in_colour_and_grey_by_every_way_through_the_decoder(variant, channels):
    record, right = READ[variant]()
    expected = right.pixels if channels == 3 else luma(right.pixels)
    decoder = ImageDecoder(channels, None)
    alone = decoder(record)
    assert differ(alone, expected) <= right.within + (channels == 1)
    assert [what.startswith(begin) for what, begin in zip(decoder.dropped(), right.dropped, strict=True)].count(0) == 0
    batch = np.zeros((2, *expected.shape), np.uint8)
    for given in (record, memoryview(record)):
        found = decoder(given, batch[1])
        assert (found == alone).all(), "as the first one, in a row of a batch, too"
    side = ImageDecoder(channels, 16)
    assert (side(record) == side(record, np.zeros((16, 16, channels), np.uint8))).all()


@pytest.mark.parametrize("variant", REFUSED, ids=" ".join)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("out", [None, np.zeros((6, 8, 3), np.uint8)])
def test_a_variant_that_is_not_read_is_refused_in_a_sentence(variant, channels, out):
    made, sentence = REFUSED[variant]
    with pytest.raises(ValueError, match=sentence) as problem:
        ImageDecoder(channels, None)(made(), out)
    assert "0x" not in str(problem.value)


def test_every_variant_has_its_row_in_the_docs_and_every_row_its_variant():
    section = PAGE.read_text(encoding="utf-8").split("\n### Images\n")[1].split("\n##")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert {(kind, variant) for kind, variant, _ in rows[2:]} == {*READ, *REFUSED}
    assert {(kind, variant) for kind, variant, said in rows[2:] if said.startswith("refused")} == {*REFUSED}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_each_of_the_eight_ways_of_storing_is_turned_upright(orientation):
    seen = Image.fromarray(corner)
    ways = [None, None, T.FLIP_LEFT_RIGHT, T.ROTATE_180, T.FLIP_TOP_BOTTOM, T.TRANSPOSE]
    stored = [*ways, T.ROTATE_90, T.TRANSVERSE, T.ROTATE_270][orientation]
    exif = Image.Exif()
    exif[0x112] = orientation
    record = saved(seen if stored is None else seen.transpose(stored), "JPEG", quality=95, exif=exif)
    assert differ(ImageDecoder(3, None)(record), corner) <= 8
    small = np.asarray(seen.resize((8, 8), Image.Resampling.BILINEAR))
    assert differ(ImageDecoder(3, 8)(record), small) <= 8


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_exif_is_as_none(kind):
    whole = turned(6, kind)
    start = whole.index(b"MM\0*")
    for damaged in (patched(whole, start, *b"\xff" * 8), patched(whole, start + 4, 255, 255, 255, 255)):
        if kind == "PNG":
            damaged = with_right_checksum(damaged, b"eXIf")
        assert ImageDecoder(3, None)(damaged).shape == (32, 16, 3), "as it is stored"


def with_right_checksum(content: bytes, chunk: bytes) -> bytes:
    start = content.index(chunk)
    end = start + 4 + int.from_bytes(content[start - 4 : start], "big")
    return patched(content, end, *zlib.crc32(content[start:end]).to_bytes(4, "big"))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of tags that are cut, and then raises
@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG"])
def test_what_is_cut_is_refused_without_a_word_of_our_memory(kind):
    record = saved(Image.fromarray(np.tile(colour, (4, 4, 1))), kind)
    for keep in (3, 20, len(record) // 2):
        with pytest.raises((ValueError, OSError, SyntaxError)) as problem:
            ImageDecoder(3, None)(record[:keep])
        assert str(problem.value)
        assert "0x" not in str(problem.value)
