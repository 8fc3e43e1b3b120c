"""Data of the input pipeline's benchmark: photographs that it makes, CIFAR-10's files, and packs of both."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from volary.data.preparation.packing import pack
from volary.data.sources.images import Images

SHARED = Path(__file__).parents[2] / "shared" / "data" / "cifar10"
DISTINCT = 24  # photographs; the others are these with another grain


def photos(folder: Path, count: int) -> Path:
    """Images of 500 x 375, about 110 kB each, in 10 classes: smooth colours, edges, and grain as cameras have it."""
    random = np.random.default_rng(0)
    scenes = [_scene(random) for _ in range(DISTINCT)]
    for number in range(count):
        grain = random.normal(scale=9, size=(375, 500, 3))
        path = folder / "train" / str(number % 10) / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (scenes[number % DISTINCT] + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, "JPEG", quality=94)
    return _with_test_part(folder)


def cifar(folder: Path, count: int) -> Path | None:
    """The first files of each class of CIFAR-10's training part; None without the data sets beside the checkout."""
    if not SHARED.is_dir():
        return None
    with tarfile.open(SHARED / "train.tar.gz") as tar:
        for member in tar:
            *_, label, name = Path(member.name).parts
            if member.isreg() and int(Path(name).stem) * 10 < count:
                path = folder / "train" / label / name
                path.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                path.write_bytes(content.read())
    return _with_test_part(folder)


def packed(folder: Path, at: Path) -> Path:
    """The training part in shards."""
    for split in ("train", "test"):
        pack(Images(folder=folder, size=32).open(split), at / split, 64 * 2**20, lambda _: None)
    return at


def may_drop() -> bool:
    """Whether the page cache can be dropped here."""
    return os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_page_cache() -> None:
    """Let the next reads come from the disk, or from what the hypervisor keeps of it."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def _scene(random: np.random.Generator) -> np.ndarray:
    small = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
    smooth = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
    few = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    edges = few.resize((500, 375), Image.Resampling.NEAREST)
    return np.asarray(Image.blend(smooth, edges, 0.3)).astype(np.float32)


def _with_test_part(folder: Path) -> Path:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, "JPEG")
    for label in os.listdir(folder / "train"):  # noqa: PTH208 -- names alone
        path = folder / "test" / label / "0.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())
    return folder
