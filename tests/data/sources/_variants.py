"""Variants of containers, by their rows in docs/data.md, and the files that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from data.decoding._image_files import saved
from volary.data.loading.pipeline import Pipeline
from volary.data.sources.images import Images
from volary.errors import DataError

Case = Callable[[Path], None]
CASES: dict[tuple[str, str], Case] = {}
REFUSED, TOLD, READ = "refused", "told", "read"
SAID: dict[tuple[str, str], str] = {}


def case(table: str, variant: str, said: str) -> Callable[[Case], Case]:
    def note(function: Case) -> Case:
        CASES[table, variant], SAID[table, variant] = function, said
        return function

    return note


def picture(value: int = 0, kind: str = "PNG") -> bytes:
    return saved(Image.new("RGB", (6, 4), (value, 0, 0)), kind)


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture())


def in_folders(root: Path) -> Path:
    """Two classes with an image in both parts; gives the training part."""
    write(root, *(f"{split}/{name}/0.png" for split in ("train", "test") for name in ("ant", "bee")))
    return root / "train"


def opened(root: Path, split: Any = "train", **settings: Any) -> Pipeline:
    return Images(folder=str(root), **settings).open(split)


def remark(root: Path) -> str:
    (text,) = opened(root).remarks
    assert text.startswith(f"{root}/train")
    return text


def refusal(root: Path, split: Any = "train") -> str:
    with pytest.raises(DataError) as problem:
        opened(root, split)
    return str(problem.value)
