"""torch's DataLoader as its users write it: textbook Pillow, and with the same decoder as ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from volary.data.decoding.images import ImageDecoder

WORKERS = (0, 1, 2, 4)


class Files(Dataset[Any]):
    """Image files and the number of their folder."""

    def __init__(self, folder: Path, decode: Callable[[bytes], Any]) -> None:
        self._files = sorted((folder / "train").rglob("*.jpg"))
        classes = {name: number for number, name in enumerate(sorted({file.parent.name for file in self._files}))}
        self._labels = [classes[file.parent.name] for file in self._files]
        self._decode = decode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        content, label = self.stored(index)
        return self._decode(content), label

    def stored(self, index: int) -> tuple[bytes, int]:
        """The file, and its label."""
        return self._files[index].read_bytes(), self._labels[index]


class Textbook:
    """Pillow, a float tensor, normalised one by one."""

    def __init__(self, side: int) -> None:
        self._side = side
        self._mean, self._std = torch.full((3, 1, 1), 0.45), torch.full((3, 1, 1), 0.22)

    def __call__(self, content: bytes) -> torch.Tensor:
        import io

        with Image.open(io.BytesIO(content)) as image:
            pixels = image.convert("RGB")
        if pixels.size != (self._side, self._side):
            pixels = pixels.resize((self._side, self._side), Image.Resampling.BILINEAR)
        values = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous().to(torch.float32) / 255
        return (values - self._mean) / self._std


class Same:
    """Our decoder, bytes."""

    def __init__(self, side: int | None) -> None:
        self._decode = ImageDecoder(3, side)

    def __call__(self, content: bytes) -> np.ndarray:
        return np.array(self._decode(content))

    def __reduce__(self) -> Any:
        return type(self), (self._decode.side,)


def epoch_seconds(files: Files, batch_size: int, workers: int) -> float:
    """From the constructor to the last batch."""
    start = time.perf_counter()
    touched = 0
    # what a script has on Linux: a process that was spawned would spawn its workers, which import everything anew
    how = "fork" if workers else None
    for inputs, _ in DataLoader(files, batch_size, shuffle=True, num_workers=workers, multiprocessing_context=how):
        touched += int(inputs[0, 0, 0, 0] >= 0) * len(inputs)
    return time.perf_counter() - start


def best_workers(files: Files, batch_size: int, choices: tuple[int, ...] = WORKERS) -> int:
    """With how many workers an epoch is shortest, by one try each."""
    return min(choices, key=lambda workers: epoch_seconds(files, batch_size, workers))
