"""Image files in class folders, listed from a folder or a tar, decoded when they are first asked for."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from volary.data.archive import Archive
from volary.data.memory import scaled
from volary.errors import CorruptSample, DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
PIXELS_LIMIT = 64 * 2**20  # of one image: 8192 x 8192; its header says how many there are
FILE_LIMIT_BYTES = 256 * 2**20  # of one image's file
ACCEPTED = "class folders of image files (" + ", ".join(sorted(SUFFIXES)) + ")"


@dataclass(frozen=True)
class Picture:
    """One image file: what to call it in a message, its class folder, and how to read its size in bytes, and these."""

    name: str
    folder: str
    size: Callable[[], int]
    read: Callable[[], bytes]


def list_folder(path: Path) -> list[Picture]:
    """The images of the class folders in `path`, by class and name."""
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [file for folder in folders for file in sorted(folder.iterdir()) if _is_image(file.name) and file.is_file()]
    return _some(path, [Picture(str(file), file.parent.name, partial(_size, file), file.read_bytes) for file in files])


def _size(file: Path) -> int:
    return file.stat().st_size


def list_archive(path: Path) -> list[Picture]:
    """The images of a tar, by class and name; the class is the folder that a file is directly in."""
    archive = Archive.open(path)
    members = [m for m in archive.members if len(m.name.parts) > 1 and _is_image(m.name.name)]
    members.sort(key=lambda member: (member.name.parts[-2], str(member.name)))
    pictures = [
        Picture(f"{path}:{m.name}", m.name.parts[-2], partial(int, m.size), partial(archive.read, m)) for m in members
    ]
    return _some(path, pictures)


def _some(path: Path, pictures: list[Picture]) -> list[Picture]:
    if not pictures:
        raise DataError(f"{path}: empty: no image found; accepted: {ACCEPTED}")
    return pictures


def _is_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


@dataclass(frozen=True, eq=False)
class Decoder:
    """Image files to uint8 tensors (channels, height, width). side: None keeps the size, which all must share."""

    channels: int
    side: int | None

    def __call__(self, picture: Picture) -> Tensor:
        """Decode `picture`. Raises CorruptSample, naming the file, if it is damaged or cannot be read."""
        try:
            _refuse_large(picture.size(), FILE_LIMIT_BYTES, "bytes")
            with Image.open(io.BytesIO(picture.read())) as image:
                _refuse_large(image.width * image.height, PIXELS_LIMIT, f"pixels ({image.width}x{image.height})")
                pixels = image.convert("RGB" if self.channels == 3 else "L")
                if self.side is not None and pixels.size != (self.side, self.side):
                    pixels = pixels.resize((self.side, self.side), Image.Resampling.BILINEAR)
                values = np.array(pixels, dtype=np.uint8)
        except Exception as problem:  # decoders of foreign bytes raise whatever they like
            raise CorruptSample(f"{picture.name}: not an image that can be decoded ({problem})") from problem
        return torch.from_numpy(values).view(*values.shape[:2], self.channels).permute(2, 0, 1)


def _refuse_large(count: int, most: int, what: str) -> None:
    if count > most:
        raise ValueError(f"it has {count} {what}, and at most {most} are read")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Samples of image files. Decoded ones are kept as uint8 while all of them fit into cache_bytes."""

    pictures: list[Picture]
    targets: Tensor
    classes: int
    decode: Decoder
    scale: float | Tensor
    shift: float | Tensor
    cache_bytes: int
    input_shape: tuple[int, ...] = field(init=False)
    _cache: Tensor | None = field(init=False)
    _cached: Tensor = field(init=False)

    def __post_init__(self) -> None:
        first = self._first()
        fits = first.numel() * len(self) <= self.cache_bytes
        object.__setattr__(self, "input_shape", tuple(first.shape))
        # memory that is never written is never taken: a cache costs what was decoded so far
        object.__setattr__(self, "_cache", torch.empty((len(self), *first.shape), dtype=torch.uint8) if fits else None)
        object.__setattr__(self, "_cached", torch.zeros(len(self), dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def input_dtype(self) -> torch.dtype:
        """float32."""
        return torch.float32

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (n, channels, height, width) float32 and targets (n,) int64."""
        pixels = self._gathered(indices) if self._cache is not None else self._decoded(indices)
        return scaled(pixels, self.scale, self.shift), self.targets.index_select(0, indices)

    def _first(self) -> Tensor:
        """The first image that can be decoded, whose size all have. Raises CorruptSample if there is none."""
        for picture in self.pictures:
            try:
                return self.decode(picture)
            except CorruptSample:
                if picture is self.pictures[-1]:
                    raise
        raise AssertionError("there is one")

    def _gathered(self, indices: Tensor) -> Tensor:
        assert self._cache is not None
        new = indices[~self._cached[indices]]
        if len(new):
            self._cache[new] = self._decoded(new)
            self._cached[new] = True
        return self._cache.index_select(0, indices)

    def _decoded(self, indices: Tensor) -> Tensor:
        pixels = torch.empty((len(indices), *self.input_shape), dtype=torch.uint8)
        for place, index in enumerate(indices.tolist()):
            try:
                image = self.decode(self.pictures[index])
            except CorruptSample as problem:
                problem.index = index
                raise
            if tuple(image.shape) != self.input_shape:
                raise DataError(
                    f"{self.pictures[index].name}: is {image.shape[2]}x{image.shape[1]} pixels, the first image "
                    f"{self.input_shape[2]}x{self.input_shape[1]}; accepted: one size, or the setting `size`"
                )
            pixels[place] = image
        return pixels
